"""Matrix products by oneDNN: the same numbers, of every layer and for every gradient."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from transformers import Qwen2Config, Qwen2ForCausalLM

from art_cli.config.sections.model import AdapterConfig
from art_cli.models.adapter import with_adapter
from art_cli.models.forward import products
from art_cli.models.forward.products import OneDnnLinear, product, use_quickest

LARGE = (640, 512)  # more than products.SMALLEST_WEIGHT numbers

pytestmark = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN"
)


@pytest.fixture
def amd(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """A CPU on which it is worth it. Return the shapes that oneDNN was asked for."""
    asked: list[tuple[int, ...]] = []
    by_onednn = products._by_onednn

    def spy(x: Tensor, weight: Tensor) -> Tensor:
        asked.append((*x.shape, *weight.shape))
        return by_onednn(x, weight)

    monkeypatch.setattr(products, "is_worth_it", lambda: True)
    monkeypatch.setattr(products, "_by_onednn", spy)
    return asked


def near(a: Tensor | None, exact: Tensor | None) -> bool:
    """Within the rounding of fp32, of numbers that were made in fp64."""
    assert a is not None and exact is not None and a.shape == exact.shape
    return float((a - exact).norm() / exact.norm()) < 1e-6


@pytest.mark.parametrize("rows", [(2,), (5, 7), (1, 33)])
def test_a_product_and_its_gradients(amd: list[tuple[int, ...]], rows: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    exact = [torch.randn(*rows, 512).double(), torch.randn(LARGE).double()]
    mine = [t.float().requires_grad_() for t in exact]
    exact = [t.requires_grad_() for t in exact]
    slope = torch.randn(*rows, 640)
    (product(*mine) * slope).sum().backward()
    (exact[0] @ exact[1].T * slope).sum().backward()
    assert len(amd) == 3, "forward, and a gradient of each"
    assert near(product(*mine).detach(), (exact[0] @ exact[1].T).detach())
    assert all(near(a.grad, b.grad) for a, b in zip(mine, exact, strict=True))


def test_without_gradients(amd: list[tuple[int, ...]]) -> None:
    x, weight = torch.randn(3, 512), torch.randn(LARGE)
    with torch.inference_mode():
        assert near(product(x, weight), x.double() @ weight.double().T)
    frozen = product(x.requires_grad_(), weight)
    frozen.sum().backward()
    assert len(amd) == 3, "a frozen weight has no gradient to be made"


@pytest.mark.parametrize(
    ("x", "weight"),
    [
        (torch.randn(1, 512), torch.randn(LARGE)),
        (torch.randn(9, 64), torch.randn(64, 64)),
        (torch.randn(9, 512).bfloat16(), torch.randn(LARGE).bfloat16()),
    ],
    ids=["one row", "a small weight", "bf16"],
)
def test_what_torch_does_as_quickly(amd: list[tuple[int, ...]], x: Tensor, weight: Tensor) -> None:
    assert torch.equal(product(x, weight), x @ weight.T)
    assert not amd


def test_on_other_cpus_all_is_torchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, small = nn.Linear(512, 640), nn.Linear(64, 64)
    monkeypatch.setattr(products, "is_worth_it", lambda: False)
    use_quickest(layer)
    assert type(layer) is nn.Linear
    monkeypatch.setattr(products, "is_worth_it", lambda: True)
    use_quickest(layer)
    use_quickest(small)
    assert type(layer) is OneDnnLinear and type(small) is nn.Linear


@pytest.mark.parametrize(
    ("name", "avx512", "worth"),
    [
        ("AMD EPYC 9555", True, True),
        ("AMD EPYC 7763", False, False),
        ("Intel(R) Xeon(R) Platinum", True, False),
    ],
)
def test_which_cpus(monkeypatch: pytest.MonkeyPatch, name: str, avx512: bool, worth: bool) -> None:
    cpu = {"cpu_name": name, "avx512_f": avx512}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: cpu)
    assert products.is_worth_it.__wrapped__() is worth


@pytest.mark.parametrize("adapter", [False, True], ids=["all weights", "adapter"])
def test_a_model_computes_and_learns_the_same(
    monkeypatch: pytest.MonkeyPatch, amd: list[tuple[int, ...]], adapter: bool
) -> None:
    def made(quick: bool) -> dict[str, Tensor]:
        """Return the logits and all gradients of a model."""
        monkeypatch.setattr(products, "is_worth_it", lambda: quick)
        torch.manual_seed(0)
        config = Qwen2Config(
            hidden_size=512,
            intermediate_size=640,
            num_hidden_layers=2,
            num_attention_heads=8,
            num_key_value_heads=8,
            vocab_size=300,
        )
        model = Qwen2ForCausalLM(config).eval()
        use_quickest(model)
        if adapter:
            for name, p in with_adapter(model, AdapterConfig(rank=4)).named_parameters():
                if "lora_B" in name:
                    nn.init.normal_(p)
        logits = model(input_ids=torch.arange(40).view(2, 20)).logits
        logits.log_softmax(-1)[..., 3].sum().backward()
        grads = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
        return {"logits": logits.detach(), **grads}

    plain = made(quick=False)
    assert not amd
    quick = made(quick=True)
    assert len(amd) > 20 and plain.keys() == quick.keys()
    for name, value in plain.items():
        # A key's bias shifts all scores of a query alike, so that its gradient is rounding alone.
        gap = float((quick[name] - value).norm() / value.norm())
        assert gap < 1e-4 or name.endswith("k_proj.bias"), name
