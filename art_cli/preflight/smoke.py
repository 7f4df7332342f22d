"""`art run --smoke`: the same experiment for one step, small enough for any CPU.

A smoke run is only a config: the experiment's with overrides. All code that reads it is the code of
a real run. Cheap substitutes replace what costs money or memory: a small random model replaces the
base (of its family and with its tokenizer, if available), and a stub replaces judges and simulated
users. A random model never solves the task, so the env's own gold() is played in addition.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python
from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerBase, Qwen3Config
from transformers.utils import logging as transformers_logging

from art_cli.chat.render import Renderer
from art_cli.config.schema import Experiment
from art_cli.config.sections.env import opponents_asked, opponents_saved
from art_cli.config.sections.llm import LLMConfig
from art_cli.config.sections.model import ModelConfig, TinyConfig
from art_cli.envs.base import Env, NoServicesError
from art_cli.errors import UsageError
from art_cli.llms.services import llm_settings
from art_cli.llms.stand_in import STAND_IN
from art_cli.models import tiny
from art_cli.models.tiny import END_OF_TEXT, END_OF_TURN
from art_cli.preflight.base_model import tokenizer_of
from art_cli.preflight.check_result import where_and_what
from art_cli.preflight.envs.play import Played
from art_cli.preflight.envs.players import Gold
from art_cli.preflight.envs.rewards import findings_on_gold
from art_cli.preflight.envs.subject import Options, Subject
from art_cli.preflight.envs.watch import Stuck
from art_cli.preflight.memory.shape import UnknownSizeError, read_config
from art_cli.preflight.small_model.build import small_model, vocabulary_of
from art_cli.training.algorithm.advantage import set_advantages, teaches
from art_cli.training.model import TrainableModel
from art_cli.training.trainers.sft import demonstration
from art_cli.types import Message, TrajectoryGroup

transformers_logging.disable_progress_bar()

SUFFIX = "-smoke"
NUM_GOLD = 4  # episodes
LONGEST = 32768  # tokens of an episode, if the tokenizer is not the base's and may need more tokens
LONGEST_TURN = 16
AGENT_SECONDS = 30.0


def name_of(name: str) -> str:
    """Return the name of the smoke run of an experiment."""
    return name[: 100 - len(SUFFIX)] + SUFFIX


def overrides(cfg: Experiment, settings: Any, base: StandIn) -> list[str]:
    """Return the changes to the experiment, as overrides for `art run CONFIG`."""
    changes: dict[str, Any] = {
        "name": name_of(cfg.name),
        "model": None,  # reset first, so that no replaced field remains
        "engine": None,
        "backend": None,
        "track": None,
        "sampling.max_tokens": min(cfg.sampling.max_tokens, LONGEST_TURN),
        "train.steps": 1,
        "train.scenarios_per_step": 2,
        "train.num_minibatches": min(cfg.train.num_minibatches, 2),
        "train.group_size": 2,
        "train.warmup_steps": 0,
        "train.mask_truncated_completions": False,  # a random model never ends a turn
        "train.dynamic_sampling": False,
        "train.num_processes": 1,
        "train.optimizer": "adamw",
        "train.max_staleness": 0,
        "checkpoint.every": 1,
    }
    lines = [_line(path, value) for path, value in changes.items()]
    longest = cfg.engine.max_model_len if base.has_tokenizer else LONGEST
    engine = {"use": "transformers", "max_num_seqs": 8, "max_model_len": longest}
    lines += [_line("engine", engine), _line("model", _model(cfg, base))]
    lines += [_line("backend", {"use": "local"}), _line("track", {})]
    if cfg.eval:
        lines += [_line("eval.episodes", 2), _line("eval.every", 1)]
    if cfg.sft:
        lines += [_line("sft.num_demonstrations", 8), _line("sft.epochs", 1)]
    if cfg.agent.use != "builtin":
        lines.append(_line("agent.timeout", min(cfg.agent.timeout, AGENT_SECONDS)))
    return [*lines, *_nobody(cfg, settings)]


def _model(cfg: Experiment, base: StandIn) -> dict[str, Any]:
    adapter = cfg.model.adapter and asdict(cfg.model.adapter)
    model = {"base": base.name, "adapter": adapter, "device": "cpu", "dtype": "float32"}
    if base.has_tokenizer:  # else the chat template is not the base's
        model |= {"tool_format": cfg.model.tool_format, "template_args": cfg.model.template_args}
    return model | ({"tiny": asdict(cfg.model.tiny)} if base.name == "tiny" else {})


def _nobody(cfg: Experiment, settings: Any) -> Iterator[str]:
    """Yield overrides that replace the judge and every model that the env calls by a stub.

    The judge's reward is always used, because a random model earns the same from any env.
    """
    if cfg.judge:
        yield from _asking_nobody("judge")
        yield _line("judge.cache", False)
        yield _line("judge.max_usd", None)
        own = cfg.reward.env if cfg.reward else 0.0
        yield _line("reward", {"env": own, "judge": 1.0, "gate": None})
    for name in llm_settings(settings):
        yield from _asking_nobody(f"env.args.{name}")
    for name in opponents_asked(cfg.env.opponents):
        yield _line(name, "script")
    for name in opponents_saved(cfg.env.opponents):
        yield _line(name, "start")
    models = {n: m if m == "base" else {"model": STAND_IN} for n, m in cfg.agent.models.items()}
    if models:
        yield _line("agent.models", models)


def _asking_nobody(section: str) -> Iterator[str]:
    yield _line(f"{section}.model", STAND_IN)
    for each in fields(LLMConfig):
        if each.name != "model":
            default = each.default if each.default_factory is MISSING else each.default_factory()
            yield _line(f"{section}.{each.name}", default)


def _line(path: str, value: Any) -> str:
    return f"{path}={json.dumps(to_jsonable_python(value))}"


# -- the model -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StandIn:
    """The model of a smoke run, with whatever is available of the base that it replaces."""

    name: str  # as model.base: a folder, or tiny
    config: dict[str, Any] | None = None  # the base's own, if it is known
    tokenizer: PreTrainedTokenizerBase | None = None  # likewise
    missing: str = ""  # why one of them is missing

    @property
    def has_tokenizer(self) -> bool:
        """True if the base's own tokenizer and chat template are used."""
        return self.tokenizer is not None


def stand_in_for(base: str, folder: Path) -> StandIn:
    """Return the base's config and tokenizer as far as available, never its weights.

    Raises UsageError if there is no such model, or it has no chat template.
    """
    if base == "tiny":
        return StandIn(name="tiny")
    try:
        config = read_config(base)
    except UnknownSizeError as e:
        return StandIn(name=str(folder), missing=str(e))
    tokenizer, why = tokenizer_of(base)
    if tokenizer is not None and not tokenizer.chat_template:
        raise UsageError(
            f"model.base: {base!r} has no chat template; use an instruct model, or add "
            "chat_template.jinja to its folder"
        )
    return StandIn(name=str(folder), config=config, tokenizer=tokenizer, missing=why)


def make_small(stand_in: StandIn, texts: list[str], seed: int) -> str:
    """Write the model into its folder, and return its family.

    `texts` train a tokenizer if there is none. Raises UsageError if the base's config does not
    describe a model.
    """
    tokenizer, ends = stand_in.tokenizer, {}
    if tokenizer is None:
        _, tokenizer = tiny.make(TinyConfig(), texts, seed)
        end, pad = map(tokenizer.backend_tokenizer.token_to_id, (END_OF_TURN, END_OF_TEXT))
        ends = {"bos_token_id": None, "eos_token_id": end, "pad_token_id": pad}
    config = (stand_in.config or Qwen3Config().to_dict()) | ends
    model = small_model(config, vocabulary_of(tokenizer), seed)
    for name, value in ends.items():
        setattr(model.config.get_text_config(), name, value)
    model.save_pretrained(stand_in.name)
    tokenizer.save_pretrained(stand_in.name)
    return str(model.config.model_type)


# -- what a random model never does --------------------------------------------------------


class SmokeModel(TrainableModel):
    """A model whose update is tried even if all siblings earned the same reward."""

    async def update(self, groups: list[TrajectoryGroup]) -> dict[str, float]:
        """Run the update as if each sibling had earned more than the previous one.

        The rewards are restored afterwards, because the run's files report them.
        """
        if any(map(teaches, groups)):
            return await super().update(groups)
        earned = [
            (t, t.reward, t.advantage, t.turn_advantages) for group in groups for t in group.valid
        ]
        try:
            for group in groups:
                for place, trajectory in enumerate(group.valid):
                    trajectory.reward = float(place)
            set_advantages(groups, self.experiment.train.advantage)
            return await super().update(groups)
        finally:
            for t, reward, advantage, by_turn in earned:
                t.reward, t.advantage, t.turn_advantages = reward, advantage, by_turn


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldPlay:
    """The outcome of the env's own perfect player. Only one of the fields is set."""

    did: str = ""
    odd: str = ""
    not_tried: str = ""


def play_gold(env: type[Env], cfg: Experiment, settings: Any) -> GoldPlay:
    """Play the env's own perfect player, as `art envs check` does."""
    limit = Options(episodes=NUM_GOLD, concurrency=cfg.env.concurrency)
    subject = Subject(cfg.env.use, env, settings, limit)
    try:
        plays = [subject.play(scenario, Gold) for scenario in subject.golden]
        if not plays:
            return GoldPlay(
                not_tried=f"solving the task: {cfg.env.use} has no gold() that plays it"
            )
        wrong = [f for f in findings_on_gold(subject, plays, plays) if f.status == "failed"]
    except Stuck as e:
        return GoldPlay(odd=f"gold: {e} · {e.where}")
    except Exception as e:
        return GoldPlay(odd=_raised(e, env))
    if wrong:
        said = ("gold: " + wrong[0].what, wrong[0].where, wrong[0].todo)
        return GoldPlay(odd=" · ".join(filter(None, said)))
    for error in (p.error for p in plays if p.error):
        if isinstance(error, NoServicesError):
            return GoldPlay(not_tried="solving the task: gold() calls a model, and there is none")
        return GoldPlay(odd=_raised(error, env))
    return GoldPlay(did=_what_gold_did(plays))


def _raised(error: Exception, env: type[Env]) -> str:
    where, what = where_and_what(error, env)
    return f"gold: {what}{f' · {where}' if where else ''}"


def _what_gold_did(plays: list[Played]) -> str:
    calls = Counter(s.tool for p in plays for s in p.trajectory.steps if s.tool)
    rewards = sorted({p.reward for p in plays if p.reward is not None})
    each = f"each earned {rewards[0]:g}" if len(rewards) == 1 else "score() leaves it to a judge"
    called = f"{calls.total()} tool calls ({', '.join(sorted(calls))}), " if calls else ""
    return f"gold: the env's perfect player in {len(plays)} episodes, {called}{each}"


def render(
    messages: list[Message], folder: Path, tools: list[Any], model: ModelConfig
) -> list[int]:
    """Render a whole conversation as training would read it, with the tokenizer in a folder.

    Return the number of tokens of each sequence. There are several if the chat template rewrites
    earlier turns.
    """
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ends = AutoConfig.from_pretrained(folder).get_text_config().eos_token_id
    ends = [ends] if isinstance(ends, int) else ends
    renderer = Renderer(tokenizer, tools, ends, model.tool_format, model.template_args)
    return [len(sequence.ids) for sequence in demonstration(renderer, messages)]
