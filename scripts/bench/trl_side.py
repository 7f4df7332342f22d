"""TRL's side of `vs_trl.py`: GRPOTrainer with our model, tokenizer, prompts, tools and loss."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from datasets import Dataset  # pyright: ignore[reportMissingImports]
from setting import (
    BETAS,
    CLIP_HIGH,
    CLIP_LOW,
    GROUP_SIZE,
    MAX_GRAD_NORM,
    MAX_TOKENS,
    SCENARIOS_PER_STEP,
    Clock,
    Step,
    share_of_vowels,
)
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedTokenizerBase,
    TrainerCallback,
)
from transformers.trainer_callback import PrinterCallback
from trl import GRPOConfig, GRPOTrainer  # pyright: ignore[reportMissingImports]
from trl.chat_template_utils import (  # pyright: ignore[reportMissingImports]
    parse_response,
    qwen3_template,
)

from art_cli.envs.tools import ToolError, tools_of
from art_cli.types import Message, Scenario, Trajectory
from art_envs.order_desk import OrderDesk

T = TypeVar("T")

TOOL_ITERATIONS = OrderDesk.max_turns - 1  # TRL counts the turns after the first
COMPLETION_TOKENS = 1024  # of all turns and tool results: more than any episode needs


def now(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits: cheaper for TRL than a loop in a thread."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise RuntimeError("this env waits for something")


class Desk:
    """The order desk as TRL wants it; all that is done is done by our env."""

    scenarios: dict[str, Scenario]  # set once, by id

    def reset(self, scenario: str, **_: Any) -> None:
        """Begin an episode."""
        self._env = OrderDesk(self.scenarios[scenario], OrderDesk.Config())

    def get_order(self, order_id: str) -> str:
        """Look an order up.

        Args:
            order_id: the order
        """
        return self._call("get_order", order_id=order_id)

    def cancel_order(self, order_id: str) -> str:
        """Cancel an order.

        Args:
            order_id: the order
        """
        return self._call("cancel_order", order_id=order_id)

    def return_order(self, order_id: str) -> str:
        """Return an order.

        Args:
            order_id: the order
        """
        return self._call("return_order", order_id=order_id)

    def exchange_order(self, order_id: str, size: str) -> str:
        """Exchange an order.

        Args:
            order_id: the order
            size: the wanted one
        """
        return self._call("exchange_order", order_id=order_id, size=size)

    def _call(self, name: str, **arguments: str) -> str:
        try:
            parsed = tools_of(OrderDesk)[name].parse(arguments)
            return now(getattr(self._env, name)(**parsed))
        except ToolError as e:
            return f"error: {e}"

    def _score(self, completion: list[dict[str, Any]]) -> float:
        messages: list[Message] = [self._as_ours(m) for m in completion]
        last = completion[-1]
        if last["role"] == "assistant" and not last.get("tool_calls"):
            now(self._env.reply(last["content"]))
        return now(self._env.score(Trajectory(scenario=self._env.scenario, messages=messages)))

    def _as_ours(self, message: dict[str, Any]) -> Message:
        content = message["content"].replace("{'error': ", "error: ")  # TRL's own words
        return {"role": message["role"], "content": content}


def desk_reward(completions: list[Any], environments: list[Desk], **_: Any) -> list[float]:
    """The order desk's score."""
    return [e._score(c) for c, e in zip(completions, environments, strict=True)]


def vowel_reward(completions: list[Any], **_: Any) -> list[float]:
    """The single-turn task's score."""
    return [share_of_vowels(c[-1]["content"]) for c in completions]


class TimedTrainer(GRPOTrainer):
    """Notes when the rollout of a step is over, and what it sampled."""

    clock = Clock()
    rollout = 0.0
    sampled = 0

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        out = super()._generate_and_score_completions(inputs)
        self.rollout = self.clock.lap()
        mask = out["completion_mask"] * out.get("tool_mask", 1)
        self.sampled = int(mask.sum())
        return out


class _Steps(TrainerCallback):
    """Calls back after each optimizer step with its time, the time of the callee left out."""

    def __init__(self, tell: Callable[[Step], None]) -> None:
        self._tell = tell
        self.trainer: TimedTrainer

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self.trainer.clock.lap()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """The last thing of a step; logs are made after the optimizer step."""
        if not logs or "reward" not in logs:
            return
        trainer = self.trainer
        self._tell(
            Step(
                rollout=trainer.rollout,
                update=trainer.clock.lap(),
                sampled=trainer.sampled,
                reward=float(logs["reward"]),
            )
        )
        trainer.clock.lap()


def tokenizer_for_trl(base: Path) -> PreTrainedTokenizerBase:
    """The same tokenizer, which also says how to find the calls in a text."""
    tokenizer = AutoTokenizer.from_pretrained(base)
    tokenizer.response_template = qwen3_template  # TRL's own
    return tokenizer


def train(
    base: Path,
    steps: list[list[Scenario]],
    openings: list[list[Message]],
    learning_rate: float,
    seed: int,
    microbatch: int,
    tell: Callable[[Step, Any], None],
    *,
    tools: bool,
) -> None:
    """Train on the scenarios of `steps`, calling tell(step, model) after each.

    `openings` are the prompts of all scenarios in order, as our env makes them.
    """
    tokenizer = tokenizer_for_trl(base)
    model = AutoModelForCausalLM.from_pretrained(base)
    flat = [s for step in steps for s in step]
    Desk.scenarios = {s.id: s for s in flat}
    rows = [
        {"prompt": opening, "scenario": s.id} for s, opening in zip(flat, openings, strict=True)
    ]
    batch = SCENARIOS_PER_STEP * GROUP_SIZE
    once: dict[str, int] = {"max_new_tokens": MAX_TOKENS}
    if not tools:
        once["min_new_tokens"] = MAX_TOKENS  # equal token counts: no turn ends early
    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=microbatch,
            gradient_accumulation_steps=batch // microbatch,
            num_generations=GROUP_SIZE,
            max_completion_length=COMPLETION_TOKENS if tools else MAX_TOKENS,
            generation_kwargs=once,
            max_tool_calling_iterations=TOOL_ITERATIONS,
            loss_type="dapo",
            scale_rewards="group",
            beta=0.0,
            epsilon=CLIP_LOW,
            epsilon_high=CLIP_HIGH,
            learning_rate=learning_rate,
            lr_scheduler_type="constant",
            adam_beta1=BETAS[0],
            adam_beta2=BETAS[1],
            weight_decay=0.0,
            max_grad_norm=MAX_GRAD_NORM,
            max_steps=len(steps),
            bf16=False,
            gradient_checkpointing=False,  # TRL's default is slower
            use_cpu=True,
            dataloader_pin_memory=False,
            shuffle_dataset=False,
            save_strategy="no",
            logging_steps=1,
            report_to=[],
            disable_tqdm=True,
            seed=seed,
        )
        callback = _Steps(lambda step: tell(step, model))
        trainer = TimedTrainer(
            model=model,
            args=config,
            train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer,
            reward_funcs=desk_reward if tools else vowel_reward,
            environment_factory=Desk if tools else None,
            callbacks=[callback],
        )
        callback.trainer = trainer
        trainer.remove_callback(PrinterCallback)
        if tools:
            order = list(tools_of(OrderDesk))
            trainer._env_tools[None].sort(key=lambda method: order.index(method.__name__))
        trainer.train()


def prompt_ids(base: Path, opening: list[Message], *, tools: bool) -> list[int]:
    """Return what TRL feeds the model first: it must be what we feed it."""
    desk = Desk()
    methods = [getattr(desk, name) for name in tools_of(OrderDesk)] if tools else None
    ids = tokenizer_for_trl(base).apply_chat_template(
        opening,  # pyright: ignore[reportArgumentType]
        tools=methods,
        add_generation_prompt=True,
        return_dict=False,
    )
    return list(ids)  # pyright: ignore[reportReturnType, reportArgumentType]


def calls_tools(base: Path, turn: str) -> bool:
    """True if TRL takes a turn for one that calls tools."""
    tokenizer = tokenizer_for_trl(base)
    prompt = [{"role": "user", "content": "hello"}]
    prefix = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=False)
    ids = tokenizer.encode(f"{turn}{tokenizer.eos_token}", add_special_tokens=False)
    return bool(parse_response(tokenizer, ids, prefix=prefix).get("tool_calls"))
