"""The targets on this machine: merged weights, a server, and the files for SkyServe and Ollama."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
import yaml
from openai import AuthenticationError, BadRequestError, OpenAI
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer
from typer.testing import CliRunner

from art_cli.cli.main import app
from art_cli.deploy.store import Store
from art_cli.errors import EXIT_FAILED, EXIT_PREFLIGHT, EXIT_USAGE
from art_cli.runs.directory import RunDir

LAST = ["--checkpoint", "last"]
NAME = "test-short-2"


def code(result: Any) -> int:
    return getattr(result.exception, "exit_code", result.exit_code)


def test_merged_weights_say_what_the_adapter_on_its_base_says(art: Any, run: RunDir) -> None:
    result = art("deploy", "--to", "merged", "folder=there", *LAST)
    assert code(result) == 0, result.exception
    base = AutoModelForCausalLM.from_pretrained(run.base)
    adapted: Any = PeftModel.from_pretrained(base, str(run.checkpoint(2)))
    merged: Any = AutoModelForCausalLM.from_pretrained("there")
    ids = torch.arange(40)[None]
    with torch.no_grad():
        gap = (adapted(ids).logits - merged(ids).logits).abs().max()
    assert float(gap) < 1e-5
    assert AutoTokenizer.from_pretrained("there").chat_template
    assert not {"optimizer.pt", "adapter_config.json"} & set(os.listdir("there"))


def test_a_folder_of_someone_elses_is_left_alone(art: Any, run: RunDir) -> None:
    Path("there").mkdir()
    Path("there/thesis.txt").write_text("years of work")
    result = art("deploy", "--to", "merged", "folder=there", *LAST)
    assert code(result) == EXIT_USAGE and "is not empty" in str(result.exception)
    assert os.listdir("there") == ["thesis.txt"]


def test_weights_whose_deployment_was_killed_before_it_noted_them_are_its_own(
    art: Any, run: RunDir
) -> None:
    assert code(art("deploy", "--to", "merged", *LAST)) == 0
    deployment = Store(run).all()[0]
    folder = Path(deployment.made.pop("folder"))
    deployment.state = "deploying"
    Store(run).keep(deployment)
    assert code(art("deploy", "--to", "merged", *LAST)) == 0
    assert Store(run).all()[0].made == {"folder": str(folder)}


def test_an_incomplete_checkpoint_is_refused(art: Any, run: RunDir) -> None:
    file = run.checkpoint(2) / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    result = art("deploy", "--to", "merged", *LAST)
    assert code(result) == EXIT_FAILED and f"{file.name} is not what" in str(result.exception)
    file.unlink()
    assert f"{file.name} is missing" in str(art("deploy", "--to", "merged", *LAST).exception)


def test_what_is_asked_wrongly_is_told(art: Any, run: RunDir) -> None:
    result = art("deploy")
    assert code(result) == EXIT_USAGE and "where to? Add --to" in str(result.exception)
    assert "Did you mean 'together'? (one of together, hf" in str(
        art("deploy", "--to", "togeter").exception
    )
    result = art("deploy", "--to", "merged", "foldr=x")
    assert "merged: foldr: unknown key. Did you mean 'folder'?" in str(result.exception)
    result = art("deploy", "--to", "merged", "folder")
    assert "expected key=value" in str(result.exception)
    result = art("undeploy", "--yes")
    assert code(result) == EXIT_USAGE and "nothing is deployed" in str(result.exception)


def test_the_config_says_where_it_goes(art: Any, run: RunDir) -> None:
    written = yaml.safe_load(run.config.read_text())
    written["deploy"] = {"use": "merged", "name": "final", "args": {"folder": "there"}}
    run.config.write_text(yaml.safe_dump(written))
    assert code(art("deploy", *LAST)) == 0 and Path("there/config.json").exists()
    (known,) = json.loads(art("deployments", "--json").output)
    assert known["name"] == "final" and known["now"] == "ready"
    written["deploy"]["args"] = {"foldr": "there"}
    run.config.write_text(yaml.safe_dump(written))
    error = str(art("deploy", *LAST).exception)
    assert re.search(r"config.yaml:\d+:\d+: deploy.args.foldr: unknown key", error)


@pytest.fixture
def port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture
def ended(art: Any) -> Iterator[None]:
    """What a test has left running is ended."""
    yield
    art("undeploy", "--yes")


@pytest.fixture
def serving(art: Any, run: RunDir, port: int) -> Iterator[Any]:
    """What `art deploy --to serve --no-wait --verify` printed."""
    yield art("deploy", "--to", "serve", f"port={port}", "--no-wait", "--verify", *LAST)
    art("undeploy", "--yes")


@pytest.mark.slow
def test_a_server_answers_openais_client_as_the_checkpoint_does(
    serving: Any, art: Any, run: RunDir, port: int
) -> None:
    assert code(serving) == 0, serving.exception
    found = re.search(r"It says (\d+) of (\d+) turns as the checkpoint does", serving.output)
    assert found and found[1] == found[2] and int(found[1]) >= 8
    shown = re.findall(r"ART_SERVE_KEY=(\S+)  \(made now", serving.output)
    assert len(shown) == 1 and len(shown[0]) >= 40
    before, _, after = serving.output.partition("export ART_SERVE_KEY=")
    assert "$ART_SERVE_KEY" in after and "OPENAI_API_KEY" not in before
    client = OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=shown[0])
    assert [m.id for m in client.models.list()] == [NAME]
    ask: Any = {"model": NAME, "messages": [{"role": "user", "content": "red"}], "max_tokens": 8}
    greedy = {client.chat.completions.create(**ask, temperature=0).choices[0].message.content}
    greedy |= {client.chat.completions.create(**ask, temperature=0).choices[0].message.content}
    assert len(greedy) == 1
    chunks = client.chat.completions.create(**ask, temperature=0, stream=True)
    assert "".join(c.choices[0].delta.content or "" for c in chunks) in greedy
    several = {
        client.chat.completions.create(**ask, temperature=2, seed=s).choices[0].message.content
        for s in range(4)
    }
    assert len(several) > 1, "a request's temperature has an effect"
    with pytest.raises(BadRequestError, match="room for"):
        long = [{"role": "user", "content": "red " * 9000}]
        client.chat.completions.create(**{**ask, "messages": long})
    client.close()
    (known,) = Store(run).all()
    kept = (run.deployment("serve", NAME) / "deployment.json").read_text()
    assert known.key_env == "ART_SERVE_KEY" and shown[0] not in kept
    assert shown[0] not in art("deployments", "--json").output
    with OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="guess") as stranger:
        for ask_it in (stranger.models.list, lambda: stranger.chat.completions.create(**ask)):
            with pytest.raises(AuthenticationError, match="Authorization: Bearer"):
                ask_it()
    assert httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False).status_code == 200


@pytest.mark.slow
def test_a_key_of_the_users_own_is_never_shown(
    art: Any, ended: None, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["deploy", "--to", "serve", f"port={port}", "key_env=MY_KEY", "--no-wait", *LAST]
    result = art(*words)
    assert code(result) == EXIT_PREFLIGHT and "MY_KEY is not set" in str(result.exception)
    monkeypatch.setenv("MY_KEY", "not ascii: \xe9")
    assert "a key is ASCII, without spaces" in str(art(*words).exception)
    monkeypatch.setenv("MY_KEY", "a-key-of-my-own")
    result = art(*words, "--verify", "--json")
    assert code(result) == 0, result.exception
    lines = [line for line in result.output.splitlines() if line.startswith("{")]
    made, verified = map(json.loads, lines)  # progress is told beside them
    assert made["key_env"] == "MY_KEY" and made["key"] is None and "a-key" not in result.output
    assert verified["agreed"] == verified["turns"]
    listed = subprocess.run(
        ["ps", "-ww", "-o", "command=", "-p", str(made["made"]["pid"])],
        capture_output=True,
        text=True,
    ).stdout
    assert "a-key-of-my-own" not in listed and NAME in listed


@pytest.mark.slow
def test_one_that_serves_is_found_and_ended(serving: Any, art: Any, run: RunDir, port: int) -> None:
    (known,) = Store(run).all()
    result = art("deploy", "--to", "serve", f"port={port}", "--no-wait", *LAST)
    assert code(result) == 0 and Store(run).all()[0].made["pid"] == known.made["pid"]
    os.kill(known.made["pid"], signal.SIGKILL)
    deadline = time.monotonic() + 300
    while json.loads(art("deployments", "--json").output)[0]["now"] == "ready":
        assert time.monotonic() < deadline
    result = art("deploy", "--to", "serve", f"port={port}", "--no-wait", *LAST)
    assert code(result) == 0, "one that died is started again"
    assert code(art("undeploy", "--yes")) == 0
    with socket.socket() as s:
        assert s.connect_ex(("127.0.0.1", port)) != 0


def test_a_port_in_use_is_told(art: Any, run: RunDir, port: int) -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", port))
        s.listen()
        result = art("deploy", "--to", "serve", f"port={port}", *LAST)
    assert code(result) == EXIT_PREFLIGHT and "choose another: port=" in str(result.exception)


@pytest.mark.parametrize(
    ("settings", "key", "told", "not_told"),
    [
        ([], "", ["http://127.0.0.1:{port}/v1", "made, and shown once"], "open to"),
        (["host=::1"], "mine", ["http://[::1]:{port}/v1", "$ART_SERVE_KEY"], "open to"),
        (
            ["host=0.0.0.0", "key_env=MY_KEY"],
            "",
            ["http://127.0.0.1:{port}/v1", "$MY_KEY", "whoever reaches 0.0.0.0 and has the key"],
            "shown once",
        ),
    ],
)
def test_a_dry_run_says_where_it_will_answer_and_to_whom(
    art: Any,
    monkeypatch: pytest.MonkeyPatch,
    port: int,
    settings: list[str],
    key: str,
    told: list[str],
    not_told: str,
) -> None:
    monkeypatch.setenv("MY_KEY", "the-key")
    monkeypatch.setenv("ART_SERVE_KEY", key)
    result = art("deploy", "--to", "serve", f"port={port}", *settings, *LAST, "--dry-run")
    assert code(result) == 0, result.exception
    shown = " ".join(result.output.split())
    assert [text for text in told if text.format(port=port) not in shown] == []
    assert not_told not in shown and "the-key" not in shown and "mine" not in shown


@pytest.mark.slow
def test_ctrl_c_ends_the_server_that_the_command_waits_for(run: RunDir, port: int) -> None:
    program = [sys.executable, "-c", "from art_cli.cli.main import main; main()"]
    words = ["deploy", str(run.root), "--to", "serve", f"port={port}", *LAST]
    with subprocess.Popen([*program, *words], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            if "Ctrl-C" in line:
                break
        process.send_signal(signal.SIGINT)
        assert process.wait(300) == 0 and "ended" in process.stdout.read()
    with socket.socket() as s:
        assert s.connect_ex(("127.0.0.1", port)) != 0
    assert Store(run).all()[0].state == "stopped"


def test_the_service_file_names_gpus_that_hold_the_weights(art: Any, run: RunDir) -> None:
    art("deploy", "--to", "skyserve", *LAST)
    folder = run.deployment("skyserve", NAME)
    service = yaml.safe_load((folder / "service.yaml").read_text())
    assert service["resources"]["accelerators"] == "L4:1"
    assert service["file_mounts"] == {"/weights": str((folder / "weights").absolute())}
    assert f"--served-model-name {NAME}" in service["run"]
    result = art("deploy", "--to", "skyserve", "accelerators=H100:4", "--name", "big", *LAST)
    assert "sky serve up" in result.output
    text = (run.deployment("skyserve", "big") / "service.yaml").read_text()
    assert yaml.safe_load(text)["resources"]["accelerators"] == "H100:4"
    assert "--tensor-parallel-size 4" in text.replace("\n  ", " ")


def test_ollama_creates_it_where_it_is_installed(
    art: Any, run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = art("deploy", "--to", "ollama", *LAST)
    assert code(result) == 0 and f"ollama create {NAME} -f" in result.output
    text = (run.deployment("ollama", NAME) / "Modelfile").read_text()
    assert text.startswith("FROM /") and 'PARAMETER stop "<|im_end|>"' in text
    assert "PARAMETER repeat_penalty 1" in text and text.count('"""') == 2
    program = tmp_path / "bin/ollama"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "$@" >> asked.txt\n[ "$2" != bad ] || exit 1\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    assert code(art("deploy", "--to", "ollama", "--name", "mine", *LAST)) == 0
    assert code(art("undeploy", "mine", "--yes")) == 0
    asked = Path("asked.txt").read_text().splitlines()
    assert asked[0].startswith("create mine -f ") and asked[1] == "rm mine"
    result = art("deploy", "--to", "ollama", "--name", "bad", *LAST)
    assert code(result) == 1 and "ollama create bad" in str(result.exception)


def test_a_place_that_cannot_be_written_to_is_told(art: Any, run: RunDir) -> None:
    Path("file").write_text("")
    for there in ("/proc/no", "file/under"):
        result = art("deploy", "--to", "merged", f"folder={there}", "--name", "no", *LAST)
        assert code(result) == 1 and f"could not write {Path(there).absolute()}" in str(
            result.exception
        )


def test_what_cannot_be_verified_is_told_before_anything_is_made(art: Any, run: RunDir) -> None:
    result = art("deploy", "--to", "merged", "--verify", *LAST)
    assert code(result) == EXIT_USAGE and "serves nothing that could be asked" in str(
        result.exception
    )
    assert Store(run).all() == []


def test_a_name_has_no_spaces(art: Any, run: RunDir) -> None:
    result = art("deploy", "--to", "merged", "--name", "my model", *LAST)
    assert code(result) == EXIT_USAGE and "the name 'my model': expected" in str(result.exception)


def test_a_run_without_a_checkpoint_is_told_as_that(art: Any, run: RunDir) -> None:
    shutil.rmtree(run.checkpoints)
    assert "has no checkpoint yet" in str(art("deploy", "--to", "merged").exception)


def test_who_names_no_run_is_told_of_those_that_there_are(art: Any, run: RunDir) -> None:
    Path("task").mkdir()
    Path("task/config.yaml").write_text("name: no run")
    result = CliRunner().invoke(app, ["deploy", "runs", "--to", "merged"])
    assert code(result) == EXIT_USAGE
    assert str(result.exception).endswith(f"There is: {run.root.absolute()}.")
