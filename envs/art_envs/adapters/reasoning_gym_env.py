"""Reasoning Gym: generated puzzles of a hundred kinds, whose answers its own scorers check.

    user        Given a matrix, your job is to generate a list of elements in spiral order ...
                3 1
                0 4
    assistant   <answer>3 1 4 0</answer>

`dataset` is a name that `art envs tasks reasoning_gym` lists, `config` its settings, as in
reasoning_gym.create_dataset(). Several at once are the data set `composite`:

    config: {datasets: [{name: gcd, weight: 2}, {name: lcm, weight: 1, config: {min_value: 5}}]}
"""

from __future__ import annotations

import copy
import json
import os
import random
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, dataclass, field, fields
from functools import cached_property, lru_cache
from itertools import islice
from typing import Annotated, Any, Literal

from pydantic import Field

from art_cli import Done, Env, Message, Scenario, Split, Trajectory, play, seed_of, tell
from art_envs.adapters.evaluated import is_plain
from art_envs.adapters.library import FIRST_SEED, IsolatedRandomness, library

EXTRA = "reasoning-gym"
# Data sets whose scorers pass an answer to eval() or to sympy, which evaluates it as well.
BY_EVAL = ("binary_matrix", "n_queens", "spiral_matrix", "string_insertion")
BY_SYMPY = (
    *("countdown", "intermediate_integration", "polynomial_multiplication", "puzzle24"),
    "simple_integration",
)
# Data sets whose questions depend on the iteration order of a set of texts, which differs between
# processes.
UNSTEADY = ("isomorphic_strings", "polynomial_multiplication", "ransom_note")
TRIES = 20  # numbers to try until the library can create a question
OURS = ("seed", "size")  # settings that the scenario determines


class ReasoningGym(Env):
    """Puzzles of a hundred kinds with checked answers, from Reasoning Gym."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Settings of `env.args`."""

        dataset: str  # `art envs tasks reasoning_gym` lists them
        config: dict[str, Any] = field(default_factory=dict)  # the data set's own settings
        # Which of the library's system prompts to use: direct asks for the answer alone.
        prompt: Literal["default", "simple", "direct", "chain_of_draft", "DeepSeekZero"] = "default"
        # Share of the demonstrations that give the answer to another question: SFT on them teaches
        # the form of an answer and leaves its content to be learned from the reward.
        demo_noise: Annotated[float, Field(ge=0, le=1)] = 0.5

        def __post_init__(self) -> None:
            """Raise ValueError if the library does not have the data set, or the data set a
            setting.
            """
            _check_settings(self.dataset, self.config)
            _dataset(self.dataset, json.dumps(self.config), "train")

    max_turns = 1

    def __init__(self, scenario: Scenario, cfg: Config) -> None:
        super().__init__(scenario, cfg)
        self.answer: str | None = None

    @classmethod
    def task_list(cls) -> dict[str, str]:
        """Return the data sets, each with its description."""
        sets = library("reasoning_gym.factory", EXTRA).DATASETS
        about = {name: _line(found) for name, (found, _) in sorted(sets.items())}
        return {f"dataset={name}": line for name, line in about.items()}

    @classmethod
    def scenarios(cls, cfg: Config, split: Split) -> Iterable[Scenario]:
        """Return the seeds of a split. The splits use disjoint seeds."""
        if (names := _unsteady(cfg)) and os.environ.get("PYTHONHASHSEED", "random") == "random":
            tell(f"the questions of {names} are others in each process: set PYTHONHASHSEED=0")
        for i in range(cls.num_scenarios[split]):
            yield Scenario(id=f"{split}-{i}", split=split, seed=FIRST_SEED[split] + i)

    @cached_property
    def entry(self) -> dict[str, Any]:
        """The library's entry: the question, its answer and the metadata for the scorer."""
        split = self.scenario.split
        number = self.scenario.seed - FIRST_SEED[split]
        found = _entry(self.cfg.dataset, json.dumps(self.cfg.config), split, number)
        return copy.deepcopy(found)

    @property
    def _dataset(self) -> Any:
        return _dataset(self.cfg.dataset, json.dumps(self.cfg.config), self.scenario.split)

    def start(self) -> list[Message]:
        """Return the library's instructions for the form of an answer, and the question."""
        system = library("reasoning_gym.utils", EXTRA).SYSTEM_PROMPTS[self.cfg.prompt].strip()
        question = self.entry["question"]
        return [{"role": "system", "content": system}, {"role": "user", "content": question}]

    def reply(self, text: str) -> Done:
        """Store the text between the last <answer> and </answer>."""
        self.answer = library("reasoning_gym.utils", EXTRA).extract_answer(text)
        return Done()

    def score(self, trajectory: Trajectory) -> float:
        """Return the score of the library's scorer, 0 to 1, or 0 if it fails on the answer.

        An answer that the scorer would run as code counts as no answer.
        """
        reward, refused, failed = 0.0, False, False
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                refused = not _may_be_scored(self._kind, self.answer)
                scored = None if refused else self.answer
                reward = float(self._dataset.score_answer(scored, self.entry))
        except Exception:  # the answer's form may be one that the scorer does not expect
            failed = True
        self.metrics = {
            "success": float(reward >= 1),
            "answered": float(self.answer is not None),
            "refused": float(refused),
            "scorer_failed": float(failed),
        }
        return reward

    @property
    def _kind(self) -> str:
        """The data set of the question, also in a mixture."""
        return self.entry["metadata"].get("source_dataset", self.cfg.dataset)

    def judge_context(self) -> str:
        """Return the right answer, if the library has one."""
        answer = self.entry["answer"]
        return "" if answer is None else f"A right answer: {answer}"

    def gold(self) -> Iterator[str] | None:
        """Return the library's answer, or None for data sets that only check answers."""
        return None if self.entry["answer"] is None else iter([_answer(self.entry)])

    @classmethod
    def demonstrations(cls, cfg: Config, num: int) -> Iterable[list[Message]]:
        """Return answers in the requested form, some of them to another question."""
        for scenario in islice(cls.scenarios(cfg, "train"), num):
            env = cls(scenario, cfg)
            rng = random.Random(seed_of("demonstration", scenario.seed))
            other = rng.randrange(cls.num_scenarios["train"])
            if rng.random() < cfg.demo_noise:
                entry = cls(Scenario(id="", split="train", seed=other), cfg).entry
            else:
                entry = env.entry
            if entry["answer"] is not None:
                yield play(env, iter([_answer(entry)]).__next__)


def _answer(entry: dict[str, Any]) -> str:
    return f"<answer>{entry['answer']}</answer>"


def _unsteady(cfg: ReasoningGym.Config) -> str:
    kinds = [cfg.dataset, *(each.get("name") for each in cfg.config.get("datasets", ()))]
    return ", ".join(kind for kind in kinds if kind in UNSTEADY)


def _may_be_scored(kind: str, answer: str | None) -> bool:
    """Return whether evaluating the answer in the scorer is safe: arithmetic and nothing else."""
    if answer is None or kind not in BY_EVAL + BY_SYMPY:
        return True
    try:
        return is_plain(answer)
    except SyntaxError:
        return kind in BY_EVAL  # eval() rejects such a text too; sympy has its own notation


def _check_settings(dataset: str, config: dict[str, Any]) -> None:
    sets = library("reasoning_gym.factory", EXTRA).DATASETS
    if dataset not in sets:
        raise ValueError(
            f"Reasoning Gym has no data set {dataset!r}; `art envs tasks reasoning_gym` lists "
            f"{len(sets)}{_nearest(dataset, sets)}"
        )
    known = [f.name for f in fields(sets[dataset][1]) if f.name not in OURS]
    for name in config:
        if name not in known:
            raise ValueError(
                f"config.{name}: the data set {dataset} has {', '.join(known)}"
                f"{_nearest(name, known)}"
            )


def _nearest(name: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, list(known), n=1)
    return f". Did you mean {close[0]!r}?" if close else ""


@lru_cache(maxsize=16)
def _dataset(name: str, config: str, split: Split) -> Any:
    """Return the library's data set of a split. Raise ValueError with the library's error."""
    gym = library("reasoning_gym", EXTRA)
    settings = json.loads(config)
    for f in fields(library("reasoning_gym.factory", EXTRA).DATASETS[name][1]):
        default = f.default if f.default_factory is MISSING else f.default_factory()
        if isinstance(default, tuple) and isinstance(settings.get(f.name), list):
            settings[f.name] = tuple(settings[f.name])
    if name == "composite":
        settings["datasets"] = _mixture(settings.get("datasets"))
    size = ReasoningGym.num_scenarios[split]
    try:
        with IsolatedRandomness(FIRST_SEED[split]).lent():
            return gym.create_dataset(name, seed=FIRST_SEED[split], size=size, **settings)
    except Exception as e:  # mostly an assertion in the library
        raise ValueError(f"the data set {name} refuses its config: {e or repr(e)}") from e


@lru_cache(maxsize=1024)  # episodes of a group share a question, and some take 0.25 s to create
def _entry(name: str, config: str, split: Split, number: int) -> dict[str, Any]:
    dataset = _dataset(name, config, split)
    with IsolatedRandomness(FIRST_SEED[split] + number).lent():  # one of the data sets needs it
        for i in range(TRIES - 1):
            try:
                return dataset[number + i * len(dataset)]
            except Exception:  # the library fails on some numbers, for example with mazes
                continue
        return dataset[number]


def _mixture(datasets: Any) -> list[Any]:
    spec = library("reasoning_gym.composite", EXTRA).DatasetSpec
    if not isinstance(datasets, list) or not all(isinstance(d, dict) for d in datasets):
        example = "datasets: [{name: gcd, weight: 2}, {name: lcm, weight: 1}]"
        raise ValueError(f"the data set composite needs a list: {example}")
    for each in datasets:
        if unknown := set(each) - {"name", "weight", "config"}:
            raise ValueError(f"config.datasets: unknown {', '.join(sorted(unknown))}")
        _check_settings(each.get("name", ""), each.get("config", {}))
    return [spec(**({"weight": 1.0, "config": {}} | each)) for each in datasets]


def _line(dataset: type) -> str:
    """Return the description of a data set: the first line of its class's or module's docstring."""
    text = (dataset.__doc__ or library(dataset.__module__, EXTRA).__doc__ or "").strip()
    return text.partition("\n")[0]
