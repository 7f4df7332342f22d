"""Together's official client, in an environment of its own, sees what `art deploy` has made.

Its types are the contract: it parses, strictly, every answer that our client was given.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from own_venv import python_with
from short_run import CONFIG, Art
from together_server import BASE, PROJECT, LoopbackTogether

READ = """
import asyncio, json, sys
from pathlib import Path
from together import Together
from together.lib.cli.api.models.upload import _prepare_files, _create_upload_body

base, project, weights = sys.argv[1:]
client = Together(
    base_url=base, api_key="a-key", project_id=project, _strict_response_validation=True
)
me = client.whoami()
(supported,) = client.models.list_supported(search="Qwen3.5", product="PRODUCT_DEDICATED")
hardware = client.endpoints.hardware.list().data
config = client.models.configs.retrieve("cr_small", project_id="proj_pub")
(model,) = client.models.list()
(endpoint,) = client.endpoints.list()
again = client.endpoints.retrieve(endpoint.id)
(deployment,) = client.endpoints.deployments.list(endpoint_id=endpoint.id)
one = client.endpoints.deployments.retrieve(deployment.id, endpoint_id=endpoint.id)
said = client.chat.completions.create(
    model=endpoint.name, messages=[{"role": "user", "content": "Hello"}], max_tokens=1
)
print(json.dumps({
    "slug": me.project.slug,
    "base": supported.name,
    "prices": {h.name: h.price_cents_per_hour for h in hardware},
    "selectors": {s.key: s.value for s in config.selectors},
    "model": model.name,
    "weights": model.weights.type,
    "endpoint": again.name,
    "traffic": [t.deployment_id for t in again.traffic_split],
    "deployment": deployment.id,
    "deployed": deployment.model,
    "state": one.status.state,
    "said": said.choices[0].message.content,
    "upload": _create_upload_body(
        object_id=model.id, files=asyncio.run(_prepare_files(Path(weights)))
    ),
}))
"""


@pytest.fixture(scope="module")
def python() -> Path:
    """That of an environment with the official client."""
    return python_with("together", "together==3.1.*")


@pytest.mark.parametrize("kind", ["adapter", "all weights"])
def test_the_official_client_sees_the_same_deployment(
    kind: str, python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    words = ["train.steps=1", "eval=null"]
    if kind == "adapter":
        words += ["model.adapter={rank: 4}", "sft.weights=all"]
    trained = Art(tmp_path, "config.yaml", *words)
    assert trained.wait() == 0, trained.output
    with LoopbackTogether() as service:
        monkeypatch.setenv("TOGETHER_BASE_URL", service.url)
        monkeypatch.setenv("TOGETHER_API_KEY", "a-key")
        art = [sys.executable, "-c", "from art_cli.cli.main import main; main()"]
        flags = ["--to", "together", f"base={BASE}", "--yes", "--json"]
        ours: dict[str, Any] = json.loads(run([*art, "deploy", str(trained.run.root), *flags]))
        uploaded = tmp_path / "uploaded"  # as it is there
        uploaded.mkdir()
        for path in service.paths(ours["made"]["model"]):
            (uploaded / path).write_bytes(service.file(ours["made"]["model"], path))
        theirs = json.loads(run([str(python), "-c", READ, service.url, PROJECT, str(uploaded)]))
        (asked,) = [a.body for a in service.asked if a.path.endswith("/upload/create")]
    assert theirs["endpoint"] == ours["model"] and theirs["state"] == "DEPLOYMENT_STATE_READY"
    assert theirs["deployment"] == ours["made"]["deployment"]
    assert theirs["traffic"] == [theirs["deployment"]]
    assert f"/models/{ours['made']['model']}/revisions/" in theirs["deployed"]
    types = {"adapter": "WEIGHTS_TYPE_ADAPTER", "all weights": "WEIGHTS_TYPE_DEFAULT"}
    assert theirs["weights"] == types[kind] and theirs["base"] == BASE
    count, kind = (theirs["selectors"][f"accelerator_{x}"] for x in ("count", "type"))
    assert ours["usd_per_hour"] == theirs["prices"][f"{count}x{kind}"] / 100
    assert theirs["upload"]["objectId"] == asked["objectId"]
    assert theirs["upload"]["files"] == sorted(asked["files"], key=lambda f: f["path"])
    assert theirs["said"] == "4"


def run(words: list[str]) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout
