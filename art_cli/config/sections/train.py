"""The section `train`: the GRPO update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from art_cli.config.plugins import Plugin
from art_cli.config.rule import Rule, clash, is_positive, is_set
from art_cli.config.values import Count, CountOrZero, NonNegative, Positive

MIN_MICROBATCH_TOKENS = 64

LossName = Literal[
    "token_mean", "sequence_mean", "group_mean", "grpo", "dr_grpo", "dapo", "gspo", "cispo"
]
AdvantageName = Literal["mean", "group_std", "batch_std", "leave_one_out"]
CurriculumName = Literal["uniform", "signal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """The GRPO update."""

    steps: CountOrZero
    """Rounds of rollout, score and update. 0: the supervised stage alone."""
    scenarios_per_step: Count = 8
    """Scenarios of one step; each gives a group. More of them: less noise, more time."""
    group_size: Annotated[int, Field(ge=2)] = 8
    """Episodes of one scenario, which are compared with each other. Raise it where groups often
    earn the same."""
    learning_rate: Positive = 1.0e-5
    """Too high: the reward rises and falls again. Too low: it stays where it is."""
    lr_scheduler_type: Literal["constant", "linear", "cosine"] = "constant"
    """How the learning rate falls over the run: not at all, or to 0."""
    warmup_steps: CountOrZero = 0
    """Steps in which the learning rate rises from 0."""
    weight_decay: NonNegative = 0.0
    """The share of each weight that an update takes away, times the learning rate."""
    max_grad_norm: Positive = 1.0
    """A longer gradient is shortened to this norm."""
    max_kl: Positive | None = 0.01
    """How far one update may move the policy, in nats a token; it is shortened to that. null: no
    limit."""
    loss: LossName | Annotated[str, Plugin("losses")] = "token_mean"
    """The loss. docs/losses.md has their formulas, and which of them TRL and verl use."""
    advantage: AdvantageName | Annotated[str, Plugin("advantages")] = "mean"
    """How an episode is compared with its siblings: its reward less their mean, divided by
    nothing or by a standard deviation."""
    clip_low: NonNegative | None = None
    """How far below 1 a token's ratio may fall and still count. null: the loss's own."""
    clip_high: NonNegative | None = None
    """How far above 1 a token's ratio may rise and still count. null: the loss's own."""
    kl_coef: NonNegative = 0.0
    """The weight of the KL divergence (k3) from the policy of step 0. It holds the policy near
    that, and costs a second forward pass."""
    router_aux_loss_coef: NonNegative = 0.0
    """The weight of the loss that spreads tokens over the experts (2101.03961). For a mixture of
    experts only."""
    max_staleness: CountOrZero = 0
    """How many updates rollouts may be behind. 0: each batch is played by the newest weights, and
    the run repeats exactly; 1 or more: rollouts go on during updates."""
    num_minibatches: Count = 1
    """Updates of one batch, each with a part of its groups. All but the first are off-policy."""
    num_iterations: Count = 1
    """How often each batch is learned from. More: fewer episodes are needed, and the policy moves
    further from them."""
    dynamic_sampling: bool = False
    """Replace groups whose rewards are all equal by groups of further scenarios (DAPO,
    2503.14476)."""
    curriculum: CurriculumName | Annotated[str, Plugin("samplers")] = "uniform"
    """The scenarios that are played. uniform: each as often as every other; signal: more often
    those whose groups are likely to differ."""
    mask_truncated_completions: bool = False
    """Leave episodes with a turn that hit `sampling.max_tokens` or a full context out of the
    update."""
    microbatch_tokens: Annotated[int, Field(ge=MIN_MICROBATCH_TOKENS)] = 16384
    """The most tokens of one forward pass of the update. Fewer: less memory, the same result."""
    gradient_checkpointing: Literal["auto", "on", "off"] = "auto"
    """Keep each layer's input alone and compute the rest again: less memory, a third more time.
    auto: on a GPU, from 1B parameters on."""
    optimizer: Literal["adamw", "adamw_8bit"] = "adamw"
    """The optimizer. adamw_8bit keeps its state in a quarter of the memory; on a GPU only."""
    num_processes: Count = 1
    """Processes that share each update: one for each GPU, with the weights sharded by FSDP."""


TRAIN_RULES = (
    clash(
        {"train.router_aux_loss_coef": is_positive, "model.base": "tiny"},
        "has no effect with model.base=tiny, which has no router; remove it",
    ),
    clash(
        {"train.optimizer": "adamw_8bit", "train.num_processes": (1).__lt__},
        "{0} works in one process only, and train.num_processes is {1}; remove one of them",
    ),
    clash(
        {"train.optimizer": "adamw_8bit", "model.device": "cpu"},
        "is adamw_8bit, which needs a GPU, but model.device is cpu; remove one of them",
    ),
    clash(
        {"train.clip_low": is_set, "train.loss": "cispo"},
        "has no effect with train.loss=cispo, which clips from above only; remove it",
    ),
    Rule(
        "train.num_minibatches",
        ("train.scenarios_per_step",),
        lambda parts, scenarios: parts > scenarios,
        "is {0}, but train.scenarios_per_step is {1}: each update takes the episodes of at least "
        "one scenario; write at most {1}",
    ),
    clash(
        {"train.max_staleness": is_positive, "train.dynamic_sampling": True},
        "does not go with train.dynamic_sampling, which says only after a batch where the next one "
        "begins; remove one of them",
    ),
    clash(
        {
            "train.max_staleness": is_positive,
            "engine.use": "transformers",
            "engine.deterministic": True,
        },
        "lets rollouts run into updates, so nothing repeats exactly; add engine.deterministic: "
        "false",
    ),
)
