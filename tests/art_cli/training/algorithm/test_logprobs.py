from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from art_cli.models.forward.head import Head
from art_cli.training.algorithm import logprobs
from art_cli.training.algorithm.logprobs import chosen_logprobs, head_loss

ROWS, WIDTH, VOCAB = 50, 8, 20


def inputs(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Hidden states, head, ids and an arbitrary weight for each row."""
    torch.manual_seed(0)
    hidden = torch.randn(ROWS, WIDTH).to(dtype).requires_grad_()
    head = torch.randn(VOCAB, WIDTH).to(dtype).requires_grad_()
    return hidden, head, torch.randint(VOCAB, (ROWS,)), torch.randn(ROWS)


def plain(hidden: Tensor, head: Tensor, ids: Tensor, temperature: float) -> Tensor:
    logits = (hidden.float() @ head.float().T) / temperature
    return logits.log_softmax(-1).gather(1, ids[:, None])[:, 0]


def curved(values: Tensor) -> Tensor:
    """Not linear, so that a slope taken at the wrong place shows."""
    return torch.exp(values) - values**2


@pytest.fixture(params=[16, 17, 49, 50, 1000], ids=lambda n: f"chunks_of_{n}")
def chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(logprobs, "CHUNK_ELEMENTS", request.param * VOCAB)
    yield request.param


@pytest.mark.parametrize("by_row", [True, False])
@pytest.mark.parametrize("temperature", [1.0, 0.7, 2.0])
def test_loss_and_gradients_are_those_of_full_logits(
    chunks: int, temperature: float, by_row: bool
) -> None:
    hidden, head, ids, weights = inputs()
    expected = plain(hidden, head, ids, temperature)
    loss = (curved(expected) * weights).sum()
    grads = torch.autograd.grad(3 * loss, (hidden, head))

    mine, values = head_loss(
        hidden,
        Head(head),
        ids,
        temperature,
        lambda x, r: (curved(x) * weights[r]).sum(),
        by_row=by_row,
    )
    assert mine.item() == pytest.approx(loss.item(), rel=1e-5)
    assert torch.allclose(values, expected, atol=1e-6) and not values.requires_grad
    for got, want in zip(torch.autograd.grad(3 * mine, (hidden, head)), grads, strict=True):
        assert torch.allclose(got, want, rtol=1e-4, atol=1e-5)


def test_a_loss_that_couples_rows_is_seen_whole(chunks: int) -> None:
    hidden, head, ids, _ = inputs()
    expected = plain(hidden, head, ids, 1.0)
    grads = torch.autograd.grad(expected.mean() ** 2, (hidden, head))
    calls = []

    def objective(values: Tensor, rows: slice) -> Tensor:
        calls.append((rows.start, rows.stop))
        return values.mean() ** 2

    loss, _ = head_loss(hidden, Head(head), ids, 1.0, objective, by_row=False)
    assert calls == [(0, ROWS)]
    for got, want in zip(torch.autograd.grad(loss, (hidden, head)), grads, strict=True):
        assert torch.allclose(got, want, rtol=1e-4, atol=1e-6)


def test_the_rows_of_an_objective_cover_all_once_in_order(chunks: int) -> None:
    hidden, head, ids, _ = inputs()
    seen: list[int] = []
    head_loss(
        hidden, Head(head), ids, 1.0, lambda x, r: seen.extend(range(r.start, r.stop)) or x.sum()
    )
    assert seen == list(range(ROWS))


def test_temperature_divides_logits_and_not_log_probabilities() -> None:
    hidden, head, ids, _ = inputs()
    hot = chosen_logprobs(hidden, Head(head), ids, 2.0)
    cold = chosen_logprobs(hidden, Head(head), ids, 1.0)
    assert torch.allclose(hot, plain(hidden, head, ids, 2.0), atol=1e-6)
    assert not torch.allclose(hot, cold / 2, atol=0.1)


def test_chosen_logprobs_are_exact_and_without_a_graph(chunks: int) -> None:
    hidden, head, ids, _ = inputs()
    values = chosen_logprobs(hidden, Head(head), ids, 1.0)
    assert not values.requires_grad and values.dtype == torch.float32
    assert torch.allclose(values, plain(hidden, head, ids, 1.0), atol=1e-6)


def test_a_frozen_head_gets_no_gradient() -> None:
    hidden, head, ids, _ = inputs()
    head = head.detach()
    (expected,) = torch.autograd.grad(plain(hidden, head, ids, 1.0).sum(), hidden)
    loss, _ = head_loss(hidden, Head(head), ids, 1.0, lambda x, _: x.sum())
    loss.backward()
    assert head.grad is None and hidden.grad is not None
    assert torch.allclose(hidden.grad, expected, atol=1e-6)


@pytest.mark.parametrize("by_row", [True, False])
def test_no_rows_cost_nothing_and_break_nothing(by_row: bool) -> None:
    _, head, _, _ = inputs()
    hidden = torch.zeros(0, WIDTH, requires_grad=True)
    ids = torch.zeros(0, dtype=torch.long)
    loss, values = head_loss(hidden, Head(head), ids, 1.0, lambda x, _: x.sum(), by_row=by_row)
    loss.backward()
    assert (
        loss.item() == 0
        and len(values) == 0
        and len(chosen_logprobs(hidden, Head(head), ids, 1)) == 0
    )


def test_bf16_weights_are_normalised_and_summed_in_fp32(chunks: int) -> None:
    """Only the logits are rounded to bf16; the softmax over them and the loss are not."""
    hidden, head, ids, weights = inputs(torch.bfloat16)
    logits = (hidden @ head.T).float() / 0.7
    expected = logits.log_softmax(-1).gather(1, ids[:, None])[:, 0]
    loss, values = head_loss(hidden, Head(head), ids, 0.7, lambda x, r: (x * weights[r]).sum())
    assert values.dtype == loss.dtype == torch.float32
    assert torch.allclose(values, expected, atol=1e-6)
    assert loss.item() == pytest.approx((expected * weights).sum().item(), rel=1e-5)


def test_bf16_gradients_are_within_rounding_of_the_exact_ones(chunks: int) -> None:
    hidden, head, ids, weights = inputs(torch.bfloat16)
    exact = [x.detach().float().requires_grad_() for x in (hidden, head)]
    (plain(exact[0], exact[1], ids, 0.7) * weights).sum().backward()
    loss, _ = head_loss(hidden, Head(head), ids, 0.7, lambda x, r: (x * weights[r]).sum())
    loss.backward()
    for mine, true in zip((hidden, head), exact, strict=True):
        assert mine.grad is not None and true.grad is not None
        error = (mine.grad.float() - true.grad).norm() / true.grad.norm()
        assert error < 0.02
