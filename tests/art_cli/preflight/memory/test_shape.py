"""What config.json says of a base, wherever it is."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from art_cli.config.sections.model import AdapterConfig
from art_cli.errors import UsageError
from art_cli.models.adapter import with_adapter
from art_cli.preflight.memory.shape import (
    UnknownSizeError,
    counted,
    measured,
    read_config,
    shape_of,
    shape_of_base,
)
from tests import tiny_moe

QWEN2 = {
    "model_type": "qwen2",
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 500,
}
QWEN3 = QWEN2 | {"model_type": "qwen3", "head_dim": 32}
LLAMA = QWEN2 | {"model_type": "llama"}


@pytest.mark.parametrize(
    "config",
    [
        QWEN2,
        QWEN2 | {"tie_word_embeddings": True},
        QWEN3,
        QWEN3 | {"tie_word_embeddings": True, "attention_bias": True},
        LLAMA,
        LLAMA | {"attention_bias": True, "mlp_bias": True},
        QWEN2 | {"model_type": "mistral", "head_dim": 32},
    ],
)
def test_what_is_counted_is_what_the_model_has(config: dict[str, Any]) -> None:
    assert counted(config) == measured(config)


def test_another_family_is_built_without_its_weights() -> None:
    phi = shape_of(QWEN2 | {"model_type": "phi3", "pad_token_id": 0})
    q, kv, h, f = 64, 32, 64, 160
    layer = h * (q + 2 * kv) + q * h + h * 2 * f + f * h
    assert phi.num_linear == 3 * layer


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": "qwen2"}, "says too little"),
        ({"model_type": "no-such-family"}, "no-such-family"),
    ],
)
def test_what_cannot_be_estimated_is_said(config: dict[str, Any], words: str) -> None:
    with pytest.raises(UnknownSizeError, match=words):
        shape_of(config)


@pytest.mark.parametrize("name", tiny_moe.CONFIGS)
@pytest.mark.parametrize("targets", [("attention", "mlp"), ("attention", "mlp", "experts")])
def test_a_mixture_of_experts_is_counted_as_it_is(name: str, targets: tuple[str, ...]) -> None:
    base = tiny_moe.make(name)
    shape = shape_of(tiny_moe.CONFIGS[name].to_dict(), targets)
    routed = sum(p.numel() for n, p in base.named_parameters() if ".experts." in n and p.ndim == 3)
    assert shape.num_params == sum(p.numel() for p in base.parameters())
    assert shape.num_routed == routed
    assert shape.num_active == shape.num_params - routed * 4 // 6  # 2 of 6 experts
    adapted = with_adapter(base, AdapterConfig(rank=3, target_modules=list(targets)))
    assert 3 * shape.linear_sides == sum(p.numel() for p in adapted.parameters() if p.requires_grad)
    experts = sum(
        p.numel() for n, p in adapted.named_parameters() if ".experts." in n and "lora" in n
    )
    assert 3 * shape.routed_sides == experts


def test_targets_that_a_base_has_not_are_refused() -> None:
    with pytest.raises(UsageError, match="'experts' finds nothing in Qwen3ForCausalLM"):
        shape_of(QWEN3, ["experts"])
    assert shape_of(QWEN3, ["attention"]).linear_sides < counted(QWEN3).linear_sides


def test_a_folder_is_read_and_one_without_a_model_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no model"):
        shape_of_base(str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps(QWEN2))
    assert shape_of_base(str(tmp_path)) == counted(QWEN2)


# ---------------------------------------------------------------- the hub


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """A hub on this machine: path -> what it answers, or the status of a refusal."""
    known: dict[str, Any] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = known.get(self.path, 404)
            self.send_response(found if isinstance(found, int) else 200)
            self.end_headers()
            self.wfile.write(b"" if isinstance(found, int) else json.dumps(found).encode())

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    yield known
    server.shutdown()
    server.server_close()


def test_the_hub_is_asked_for_config_json_alone(hub: dict[str, Any]) -> None:
    hub["/some/model/resolve/main/config.json"] = QWEN3
    assert read_config("some/model") == QWEN3


def test_a_model_that_the_hub_does_not_have_is_a_mistake(hub: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="the hub has no model 'some/modle'"):
        read_config("some/modle")


def test_a_gated_model_is_of_unknown_size(hub: dict[str, Any]) -> None:
    hub["/some/model/resolve/main/config.json"] = 403
    with pytest.raises(UnknownSizeError, match=r"HTTP 403.*set HF_TOKEN"):
        read_config("some/model")


def test_what_is_no_config_is_of_unknown_size(hub: dict[str, Any]) -> None:
    hub["/some/model/resolve/main/config.json"] = ["a", "list"]  # a page of some proxy, say
    with pytest.raises(UnknownSizeError, match="the hub gave no config"):
        read_config("some/model")


def test_no_network_is_no_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(UnknownSizeError, match="not in the cache, and the hub does not answer"):
        read_config("some/model")
