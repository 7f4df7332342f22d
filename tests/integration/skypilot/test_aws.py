"""What SkyPilot would rent at AWS, and for how much: its own optimizer with seeded catalogs, AWS's
API played by moto. Nothing is launched."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sky_user import User, eventually

MACHINES = (  # instance, GPU, how many, its MiB, vCPUs, GiB, dollars an hour, as spot
    ("p5.48xlarge", "H100", 8.0, 81920, 192.0, 2048.0, 55.04, 17.6),
    ("g6.12xlarge", "L4", 4.0, 22888, 48.0, 192.0, 4.6, 1.9),
    ("m6i.2xlarge", "", "", 0, 8.0, 32.0, 0.384, 0.15),
)
ZONES = (("us-east-1", "use1-az1"), ("us-west-2", "usw2-az1"))
COLUMNS = (
    "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,"
    "AvailabilityZone,Arch,LocalDiskType,NVMeSupported,LocalDiskSize,LocalDiskCount,"
    "MaximumEfaInterfaces"
)


def seed_catalogs(folder: Path) -> None:
    """Prices as SkyPilot would download them. Without a .md5 beside them they are never fetched."""
    rows = [COLUMNS]
    for name, gpu, num, mib, cpus, gib, usd, spot in MACHINES:
        each = {"Name": gpu, "Manufacturer": "NVIDIA", "Count": num}
        each["MemoryInfo"] = {"SizeInMiB": mib}
        info = f'"{ {"Gpus": [each], "TotalGpuMemoryInMiB": mib} }"' if gpu else ""
        for region, zone in ZONES:
            rows.append(
                f"{name},{gpu},{num},{cpus},{gib},{info},{usd},{spot},{region},{zone},x86_64,,,,,0"
            )
    images = ["Tag,Region,OS,OSVersion,ImageId,CreationDate,BaseImageId"] + [
        f"skypilot:custom-{kind}-ubuntu{cuda},{region},ubuntu,22.04,ami-785db401,20260101,ami-1"
        for kind in ("gpu", "cpu")
        for cuda in ("", "-cuda13")
        for region, _ in ZONES
    ]
    files = {
        "common/accelerators.csv": ["AcceleratorName,Clouds", "L4,['AWS']", "H100,['AWS']"],
        "common/metadata.csv": ["GPU,MemoryGB,Manufacturer", "L4,24,NVIDIA", "H100,80,NVIDIA"],
        "aws/vms.csv": rows,
        "aws/images.csv": images,
        "aws/instance_quota_mapping.csv": ["InstanceType,OnDemandInstanceCode,SpotInstanceCode"],
    }
    for name, lines in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def nobody(tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    """A user with a home and an API server of their own, and no cloud."""
    home = tmp_path_factory.mktemp("home")
    seed_catalogs(home / ".sky" / "catalogs" / "v8")
    (home / ".sky" / "config.yaml").write_text("allowed_clouds: [gcp]\n")
    own = {
        "HOME": str(home),
        "SKYPILOT_API_SERVER_LOCAL_PORT": "46682",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:46683",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ACCESS_KEY_ID": "AKIATESTTESTTESTTEST",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    yield User(tmp_path_factory.mktemp("user"), **own)
    User.sky(os.environ | own, "api", "stop")


@pytest.fixture(scope="module")
def aws(nobody: User) -> Iterator[User]:
    """The same user with an account at AWS: an API server takes 20 seconds of CPU to start."""
    server = [str(Path(sys.executable).with_name("moto_server")), "-p", "46683"]
    moto = subprocess.Popen(server, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    home = Path(nobody.environment["HOME"])
    (home / ".sky" / "config.yaml").write_text("allowed_clouds: [aws]\n")
    (home / ".aws").mkdir()
    (home / ".aws" / "credentials").write_text(
        "[default]\naws_access_key_id=AKIATESTTESTTESTTEST\naws_secret_access_key=test\n"
    )
    eventually(lambda: User.sky(nobody.environment, "check", "aws") == 0, "AWS is enabled")
    yield nobody
    moto.terminate()
    moto.wait(timeout=300)


def test_without_a_cloud_it_says_in_a_line_what_to_do(nobody: User) -> None:
    printed = nobody.art("launch-cluster", "config.yaml", "--gpus", "H100:1", code=3)
    assert "no cloud is enabled" in printed and "sky check aws" in printed
    assert len(printed.splitlines()) < 6


def test_the_price_is_of_all_nodes(aws: User) -> None:
    dry = ("launch-cluster", "config.yaml", "--gpus", "H100:8", "--dry-run")
    assert "AWS (us-east-1), $55.04 an hour" in aws.art(*dry)
    two = aws.art(*dry, "backend.num_nodes=2", "train.num_processes=2")
    assert "$110.08 an hour" in two and "us-west-2" not in two.splitlines()[-1]


def test_spot_is_chosen_where_any_of_allows_it(aws: User) -> None:
    choices = "{accelerators: 'H100:8', any_of: [{use_spot: true}, {use_spot: false}]}"
    printed = aws.art(
        "run",
        "config.yaml",
        "backend.use=skypilot",
        f"backend.resources={choices}",
        "backend.storage=/shared",
        code=2,
    )
    assert "p5.48xlarge[Spot]" in printed and "$17.60 an hour" in printed
    assert "add --yes" in printed


def test_a_machine_that_nobody_has_is_told_and_nothing_is_billed(aws: User) -> None:
    printed = aws.art("launch-cluster", "config.yaml", "--gpus", "L4:8", "--dry-run", code=1)
    assert "L4" in printed and "nothing is billed" in printed
    printed = aws.art("launch-cluster", "config.yaml", "--gpus", "H1000", "--dry-run", code=1)
    assert "H1000" in printed


def test_an_api_server_that_is_not_there_is_told(user: User) -> None:
    away = User(user.folder, SKYPILOT_API_SERVER_ENDPOINT="http://127.0.0.1:9")
    printed = away.art("clusters", code=3)
    assert "API server" in printed
