"""The env of a customer-service task: tools on a database, a policy, and a customer.

A domain sets `num_goals` and `reasons`, overrides `make_database`, `draw_goal`, `policy`,
`is_identified` and `legal_writes`, and adds its tools. They are `async def`, so that the calls of
one turn run one after the other; they read and write `self.store`, and raise ToolError to refuse.
What changes it is marked `@write`. How an episode goes is in episode.py.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import islice

from art_cli import (
    Message,
    Scenario,
    Split,
    play,
    seed_of,
)
from art_envs.service.build import build_goals
from art_envs.service.cache import cached
from art_envs.service.domain import Domain, code_folder
from art_envs.service.episode import DeskEpisode
from art_envs.service.goal import (
    COMMITMENTS,
    DONE,
    Action,
    Goal,
    call,
)


class ServiceDesk(Domain):
    """The common part of all domains: their scenarios and demonstrations."""

    @classmethod
    def goals(cls, cfg: DeskEpisode.Config) -> dict[Split, list[Goal]]:
        """Return the goals of each split, always the same object. The splits share no user."""
        return _goals(cls, cls.Config(level=cfg.level, size=cfg.size, kinds=cfg.kinds))

    @classmethod
    def scenarios(cls, cfg: DeskEpisode.Config, split: Split) -> Iterable[Scenario]:
        """Return one scenario for each goal of a split."""
        for i, goal in enumerate(cls.goals(cfg)[split]):
            id = f"{split}-{i}"
            data = {"goal": goal, "kind": goal["kind"], "level": cfg.level}
            yield Scenario(id=id, split=split, seed=seed_of(cls.__name__, id), data=data)

    # Demonstrations.

    def gold(self) -> Iterator[str]:
        """Return the turns of an assistant that serves the goal correctly."""
        return self.assistant()

    @classmethod
    def demonstrations(cls, cfg: DeskEpisode.Config, num: int) -> Iterable[list[Message]]:
        """Return correct conversations in which a share `demo_noise` of decisions are guesses."""
        cfg = replace(cfg, user=None)
        for scenario in islice(cls.scenarios(cfg, "train"), num):
            desk = cls(scenario, cfg)
            rng = random.Random(seed_of("demonstration", scenario.seed))
            yield play(desk, desk.assistant(rng).__next__)

    def assistant(self, rng: random.Random | None = None) -> Iterator[str]:
        """Return the turns of an assistant that knows the goal. With `rng`, it may guess."""
        script, decision = self.goal["script"], self._decision()
        if rng and rng.random() < self.cfg.demo_noise:
            script = [*script[:decision], *self._guess(rng, script[decision:])]
        for i, step in enumerate(script):
            text = step if isinstance(step, str) else call_text(step)
            yield f"{self.goal['remark']} {text}".strip() if i == decision else text
        while True:
            yield DONE

    def _decision(self) -> int:
        """Return the index of the script's first step that decides instead of looking up."""
        for i, step in enumerate(self.goal["script"]):
            if not isinstance(step, str) and (self.is_write(step) or step["name"] in COMMITMENTS):
                return i
        return len(self.goal["script"]) - 1

    def _guess(self, rng: random.Random, right: Sequence[str | Action]) -> Sequence[str | Action]:
        """Return the correct end of the script, a refusal, or a wrong write.

        A wrong write is on a record that has been looked up. Other records would teach the model to
        invent ids.
        """
        no = [call("refuse", reason=rng.choice(list(self.reasons)))]
        steps = [step for step in self.goal["script"] if not isinstance(step, str)]
        seen = {str(v) for s in steps if not self.is_write(s) for v in s["arguments"].values()}
        near = [w for w in self.legal_writes() if seen & set(map(str, w["arguments"].values()))]
        wrong = self.goal["temptation"] or ([rng.choice(near)] if near else no)
        return rng.choice([right, no, [*wrong, DONE]])


@cache
def _goals(desk: type[ServiceDesk], cfg: ServiceDesk.Config) -> dict[Split, list[Goal]]:
    asked = [cfg.size, cfg.level, cfg.kinds]
    return cached(
        f"{desk.__name__}-goals", code_folder(desk), asked, partial(build_goals, desk, cfg)
    )


def call_text(action: Action) -> str:
    """Return a tool call as a model writes it."""
    call = json.dumps({"name": action["name"], "arguments": action["arguments"]})
    return f"<tool_call>{call}</tool_call>"
