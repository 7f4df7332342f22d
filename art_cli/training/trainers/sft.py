"""Supervised fine-tuning on demonstrations, on the assistant's tokens only."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Iterable, Iterator

import torch
from torch import Tensor, nn

from art_cli.chat.render import Conversation, Renderer
from art_cli.config.sections.sft import SFTConfig
from art_cli.errors import TrainerError, UsageError
from art_cli.models.policy import Policy
from art_cli.system.progress import silent
from art_cli.training.algorithm.logprobs import head_loss
from art_cli.training.algorithm.packing import TrainSequence, pack
from art_cli.training.trainers.budget import TokenBudget
from art_cli.training.trainers.muon import Muon
from art_cli.training.trainers.sft_cache import CachedSft, Warmed, key_of_warmup
from art_cli.types import Completion, Message, Sequence

RAMP_STEPS = 20  # of rising learning rate; then it falls linearly to a tenth
KEEP_EVERY = 30.0  # seconds between saves of an unfinished SFT


def demonstration(renderer: Renderer, messages: list[Message]) -> list[Sequence]:
    """Return a conversation as token sequences like a rollout's, with assistant tokens as sampled.

    An assistant message with weight 0 is read like the messages of others and not trained on.
    """
    conversation = Conversation(renderer)
    pending: list[Message] = []
    for message in messages:
        if message["role"] != "assistant" or message.get("weight") == 0:
            pending.append(message)
            continue
        conversation.add_messages(pending)
        ids = conversation.spoken_as(message["content"])
        completion = Completion(
            token_ids=ids, logprobs=[0.0] * len(ids), finish_reason="stop", policy_version=0
        )
        conversation.add_completion(completion)
        pending = []
    return conversation.sequences


def fine_tune(
    policy: Policy,
    renderer: Renderer,
    demonstrations: list[list[Message]],
    cfg: SFTConfig,
    seed: int,
    budget: TokenBudget,
    max_length: int,
    say: Callable[[str], None] = silent,
) -> Generator[tuple[int, int, float], None, None]:
    """Train, yielding (step, steps, loss) after each optimizer step.

    A finished SFT with the same weights, demonstrations and settings is loaded from the cache. An
    interrupted one resumes and ends with bit-identical weights. `say` reports both.

    Raises UsageError if no demonstration fits into `max_length` tokens, TrainerError if a loss is
    not finite.
    """
    data = [
        [TrainSequence(ids=s.ids, mask=s.mask, engine_logprobs=s.engine_logprobs) for s in d]
        for d in _rendered(renderer, demonstrations, say)
    ]
    data = _fitting(data, max_length, say)
    rng = random.Random(seed)
    batches = list(_batches(data, cfg, rng))
    optimizers = _optimizers(policy, cfg)
    kept = CachedSft(key_of_warmup(policy, batches, cfg, budget.tokens))
    done = _take_up(kept, policy, optimizers, budget)
    if done == len(batches):
        say(f"SFT was loaded from the cache of an identical run; to redo it: rm {kept.file}")
    elif done:
        say(f"SFT goes on after step {done} of {len(batches)}, where it was stopped")
    last_kept = time.monotonic()
    for step, batch in enumerate(batches[done:], done):
        scale = min(1.0, (step + 1) / RAMP_STEPS) * (1 - 0.9 * step / len(batches))
        loss = _step(policy, batch, optimizers, cfg.learning_rate * scale, budget)
        if loss != loss:
            raise TrainerError(
                f"the loss of SFT step {step + 1} is not a number; lower sft.learning_rate"
            )
        is_last = step + 1 == len(batches)
        if is_last or time.monotonic() - last_kept > KEEP_EVERY:
            kept.save(_state(policy, [] if is_last else optimizers, budget, step + 1))
            last_kept = time.monotonic()
        try:
            yield step + 1, len(batches), loss
        except GeneratorExit:
            if not is_last:
                kept.save(_state(policy, optimizers, budget, step + 1))
            raise


def _rendered(
    renderer: Renderer, demonstrations: list[list[Message]], say: Callable[[str], None]
) -> Iterator[list[Sequence]]:
    """Yield the tokens of each demonstration.

    If the template refuses a conversation that starts with an assistant message, as support logs
    do, that message is left out. Raises UsageError if the template still refuses it.
    """
    num_begun = 0
    for number, messages in enumerate(demonstrations, 1):
        first = next((n for n, m in enumerate(messages) if m["role"] != "system"), 0)
        try:
            try:
                yield demonstration(renderer, messages)
            except UsageError:
                rest = [*messages[:first], *messages[first + 1 :]]
                if messages[first]["role"] != "assistant" or not _teaches(rest):
                    raise
                yield demonstration(renderer, rest)
                num_begun += 1
        except UsageError as e:
            raise UsageError(f"demonstration {number} of {len(demonstrations)}: {e}") from None
    if num_begun:
        say(
            f"the chat template refuses a conversation that the assistant begins: its first words "
            f"are left out of {num_begun} of {len(demonstrations)} demonstrations"
        )


def _teaches(messages: list[Message]) -> bool:
    return any(m["role"] == "assistant" and m.get("weight") != 0 for m in messages)


def _fitting(
    data: list[list[TrainSequence]], max_length: int, say: Callable[[str], None]
) -> list[list[TrainSequence]]:
    lengths = [max(len(s.ids) for s in d) for d in data]
    fitting = [d for d, length in zip(data, lengths, strict=True) if length <= max_length]
    if not fitting:
        raise UsageError(
            f"sft: no demonstration fits into engine.max_model_len, {max_length} tokens; the "
            f"shortest of {len(data)} has {min(lengths)}, the longest {max(lengths)}. Raise it, or "
            "give shorter ones"
        )
    if left_out := len(data) - len(fitting):
        say(
            f"SFT leaves out {left_out} of {len(data)} demonstrations, which are longer "
            f"than engine.max_model_len, {max_length} tokens; the longest has {max(lengths)}"
        )
    return fitting


def _state(
    policy: Policy, optimizers: list[torch.optim.Optimizer], budget: TokenBudget, step: int
) -> Warmed:
    return Warmed(
        step=step,
        weights=[p.detach() for p in policy.trainable],
        optimizers=[optimizer.state_dict() for optimizer in optimizers],
        tokens=budget.tokens,
    )


@torch.no_grad()
def _take_up(
    kept: CachedSft, policy: Policy, optimizers: list[torch.optim.Optimizer], budget: TokenBudget
) -> int:
    """Load the cached state of an SFT. Return the number of its steps that are done."""
    warmed = kept.load()
    if warmed is None:
        return 0
    for mine, theirs in zip(policy.trainable, warmed.weights, strict=True):
        mine.copy_(theirs)
    for optimizer, state in zip(optimizers, warmed.optimizers, strict=False):
        optimizer.load_state_dict(state)
    budget.tokens = warmed.tokens
    return warmed.step


def _batches(
    data: list[list[TrainSequence]], cfg: SFTConfig, rng: random.Random
) -> Iterable[list[list[TrainSequence]]]:
    for _ in range(cfg.epochs):
        order = rng.sample(data, len(data))
        for i in range(0, len(order), cfg.batch_size):
            yield order[i : i + cfg.batch_size]


def _step(
    policy: Policy,
    batch: list[list[TrainSequence]],
    optimizers: list[torch.optim.Optimizer],
    learning_rate: float,
    budget: TokenBudget,
) -> float:
    num = sum(sum(s.mask) for d in batch for s in d)

    def gradient(parts: Iterable[list[TrainSequence]]) -> float:
        total = 0.0
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        for part in parts:
            batch = pack(part, policy.ways.shares).to(policy.device)
            hidden = policy.hidden(batch.ids, batch.positions, batch.layout, batch.hidden_at)
            repeats = torch.bincount(batch.row, minlength=len(batch.targets)) / num
            loss, _ = head_loss(hidden, policy.head, batch.targets, 1.0, _nll(repeats))
            loss.backward()
            total += float(loss.detach())
        return total

    total = budget.fit(batch, gradient)
    torch.nn.utils.clip_grad_norm_(policy.trainable, 1.0)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * group["factor"]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return total


def _nll(weights: Tensor) -> Callable[[Tensor, slice], Tensor]:
    return lambda logprobs, rows: -(logprobs * weights[rows]).sum()


def _optimizers(policy: Policy, cfg: SFTConfig) -> list[torch.optim.Optimizer]:
    """Create AdamW for all parameters, or Muon for matrices and AdamW for the rest.

    Muon trains a randomly initialized model several times faster.
    """
    embeddings = {policy.head.weight, policy.base.get_input_embeddings().weight}
    matrices: list[nn.Parameter] = []
    if cfg.optimizer == "muon":
        matrices = [p for p in policy.trainable if p.ndim == 2 and p not in embeddings]
    chosen = set(matrices)
    rest = [p for p in policy.trainable if p not in chosen]
    optimizers: list[torch.optim.Optimizer] = []
    if matrices:
        optimizers.append(Muon(matrices, lr=cfg.learning_rate, weight_decay=0.01))
        optimizers[0].param_groups[0]["factor"] = MUON_FACTOR
    if rest:
        adamw = torch.optim.AdamW(
            rest, lr=cfg.learning_rate, betas=(0.9, 0.98), weight_decay=0.01, fused=True
        )
        adamw.param_groups[0]["factor"] = 1.0
        optimizers.append(adamw)
    return optimizers


# An orthogonalized update has a far smaller root mean square than Adam's. This factor lets one
# learning rate serve both (on the tiny preset, 0.025 for matrices goes with 5e-3 for the rest).
MUON_FACTOR = 5.0
