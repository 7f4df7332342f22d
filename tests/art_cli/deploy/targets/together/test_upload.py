"""All weights to Together, part by part, over connections that break and addresses that expire."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from together_server import BASE, LoopbackTogether, part_name
from transformers import AutoModelForCausalLM, AutoTokenizer

from art_cli.deploy.targets.together import upload
from art_cli.errors import EXIT_FAILED, EXIT_INTERRUPTED
from art_cli.runs.checkpoint import weight_files
from art_cli.runs.directory import RunDir
from art_cli.system.checksums import write_sums

FLAGS = ["--to", "together", f"base={BASE}", "--checkpoint", "last", "--yes"]
PART = 4096
WEIGHTS = "model.safetensors"
PLAIN = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@pytest.fixture(scope="module")
def trained(train: Any) -> RunDir:
    """Without an adapter."""
    return train("model.adapter=null", "train.steps=2", "eval.every=1")


@pytest.fixture
def deploy(art: Any, service: LoopbackTogether, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(upload, "PART", PART)
    return lambda *words: art("deploy", *FLAGS, *words)


def said(result: Any) -> str:
    return f"{result.output}{result.exception or ''}"


def code(result: Any) -> int:
    return getattr(result.exception, "exit_code", result.exit_code)


def noted(run: RunDir) -> int:
    """How many parts have arrived, as the deployment knows."""
    found = [json.loads(f.read_text()) for f in run.root.rglob("deployment.json")]
    files = [file for d in found for file in d["made"].get("sent", {}).values()]
    return sum(len(file["parts"]) for file in files)


def sent(service: LoopbackTogether) -> Counter[str]:
    """How often each part was."""
    return Counter(part_name(a.path) for a in service.asked if a.method == "PUT")


def in_parts(folder: Path) -> set[str]:
    """Of what is uploaded, by the names of its files."""
    files = weight_files(folder)
    return {f"{f.name}/{n + 1}" for f in files for n in range(-(-f.stat().st_size // PART))}


def received(service: LoopbackTogether, to: Path) -> Path:
    """The model's files, as they are there."""
    to.mkdir()
    (model,) = service.models
    for path in service.paths(model):
        (to / path).write_bytes(service.file(model, path))
    return to


@pytest.mark.slow
def test_all_weights_are_served_as_a_model_that_transformers_loads(
    deploy: Any, service: LoopbackTogether, run: RunDir, tmp_path: Path
) -> None:
    result = deploy()
    assert code(result) == 0, said(result)
    assert "adapter" not in result.output
    (model,) = service.models.values()
    assert model["weights"]["type"] == "WEIGHTS_TYPE_DEFAULT"
    parts = in_parts(run.checkpoint(2))
    assert set(sent(service)) == set(service.parts) == parts and len(parts) > 20
    there = received(service, tmp_path / "there")
    assert not {"optimizer.pt", "progress.json"} & set(os.listdir(there))
    ids = torch.arange(12)[None]
    with torch.no_grad():
        mine, theirs = (
            AutoModelForCausalLM.from_pretrained(f)(ids).logits for f in (run.checkpoint(2), there)
        )
        before = AutoModelForCausalLM.from_pretrained(run.base)(ids).logits
    assert torch.equal(mine, theirs) and not torch.equal(mine, before)


def test_the_template_that_goes_along_knows_the_tools(
    deploy: Any, service: LoopbackTogether, run: RunDir, tmp_path: Path
) -> None:
    (run.checkpoint(2) / "chat_template.jinja").write_text(PLAIN)
    write_sums(run.checkpoint(2))
    assert code(deploy()) == 0
    tokenizer: Any = AutoTokenizer.from_pretrained(received(service, tmp_path / "there"))
    call = {"name": "look", "arguments": {"at": "it"}}
    calls = [{"id": "c", "type": "function", "function": call}]
    messages = [{"role": "assistant", "content": "", "tool_calls": calls}]
    assert '<tool_call>{"name": "look"' in tokenizer.apply_chat_template(messages, tokenize=False)
    assert (run.checkpoint(2) / "chat_template.jinja").read_text() == PLAIN


def test_a_part_that_breaks_is_sent_again_and_the_others_are_not(
    deploy: Any, service: LoopbackTogether, run: RunDir
) -> None:
    parts = in_parts(run.checkpoint(2))
    service.fault("PUT", f"/{WEIGHTS}/2$", 0, times=2)
    service.fault("PUT", f"/{WEIGHTS}/7$", 503, times=99)
    result = deploy()
    assert code(result) == EXIT_FAILED
    assert f"part 7 of {WEIGHTS} could not be uploaded: HTTP 503" in said(result)
    assert "Nothing is billed. Made so far: model" in said(result)
    assert sent(service)[f"{WEIGHTS}/7"] == upload.ATTEMPTS
    assert 7 <= len(service.parts) < len(parts)
    service.heal()
    result = deploy()
    assert code(result) == 0, said(result)
    times = sent(service)
    assert {p for p in times if times[p] > 1} == {f"{WEIGHTS}/{n}" for n in (2, 7)}
    assert set(service.parts) == parts


def test_addresses_that_expire_are_replaced(deploy: Any, service: LoopbackTogether) -> None:
    service.fault("PUT", f"/{WEIGHTS}/[579]$", 403, "Request has expired", times=3)
    result = deploy()
    assert code(result) == 0, said(result)
    assert service.num_asked("POST", "/upload/create$") >= 2
    puts = sent(service)
    assert sum(puts.values()) == len(puts) + 3  # each refused one again; some part twice, maybe


def test_an_address_that_is_never_good_ends_it(deploy: Any, service: LoopbackTogether) -> None:
    service.fault("PUT", f"/{WEIGHTS}/5$", 403, "Request has expired", times=99)
    result = deploy()
    assert code(result) == EXIT_FAILED and "Request has expired" in said(result)
    assert 2 <= service.num_asked("PUT", f"/{WEIGHTS}/5$") <= 20


def test_an_upload_that_the_service_has_given_up_begins_anew(
    deploy: Any, service: LoopbackTogether, run: RunDir, tmp_path: Path
) -> None:
    service.fault("PUT", f"/{WEIGHTS}/9$", 400, "no")
    assert code(deploy()) == EXIT_FAILED
    service.give_up_uploads()
    assert code(deploy()) == 0
    there = received(service, tmp_path / "there")
    assert (there / WEIGHTS).read_bytes() == (run.checkpoint(2) / WEIGHTS).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_one_that_is_stopped_goes_on(
    deploy: Any, service: LoopbackTogether, run: RunDir, number: signal.Signals, tmp_path: Path
) -> None:
    program = f"""
from art_cli.deploy.targets.together import upload
upload.PART = {PART}
from art_cli.cli.main import main
main()
"""
    stopped = threading.Event()

    def before_part() -> None:
        """Take no part before those that are here are noted; the twelfth is the last for now."""
        while not stopped.is_set() and len(service.parts) > min(11, noted(run)):
            stopped.wait(0.01)

    service.before_part = before_part
    words = [sys.executable, "-c", program, "deploy", str(run.root), *FLAGS]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        deadline = time.monotonic() + 600
        while len(service.parts) < 12:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(number)
        printed = process.communicate(timeout=300)[0].decode()
    stopped.set()
    if number == signal.SIGINT:
        assert process.returncode == EXIT_INTERRUPTED
        assert "Nothing is billed. Made so far: model" in printed
    assert code(deploy()) == 0
    again = [p for p, times in sent(service).items() if times > 1]
    assert len(again) <= 2 * upload.AT_ONCE, "those under way, and those not noted yet"
    there = received(service, tmp_path / "there")
    assert (there / WEIGHTS).read_bytes() == (run.checkpoint(2) / WEIGHTS).read_bytes()
    assert len(service.models) == len(service.deployments) == 1


def test_the_hash_of_a_file_is_that_of_s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"hello world")
    assert upload._hash(file) == "5eb63bbbe01eeed093cb22bb8f5acdc3"  # md5 of the whole
    monkeypatch.setattr(upload, "PART", 6)
    parts = hashlib.md5(b"hello ").digest() + hashlib.md5(b"world").digest()
    assert upload._hash(file) == f"{hashlib.md5(parts).hexdigest()}-2"
