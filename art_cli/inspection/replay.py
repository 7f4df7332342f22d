"""A replay of a stored episode against its env, with the recorded actions.

The trajectory's `steps` are the requests to the env in order, whether by the policy or an agent.
They are repeated one by one, and each result is compared with the recorded one. No model is needed.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import Any

from art_cli.envs.base import Done, Env
from art_cli.envs.tools import named_tools
from art_cli.errors import UsageError
from art_cli.inspection.conversation import messages_of
from art_cli.inspection.groups import Row
from art_cli.keys import mask_keys, mask_keys_in
from art_cli.rollout.episode import Episode
from art_cli.rollout.rollout import rollout
from art_cli.runs.trajectories import reward_parts_of
from art_cli.system.untrusted import is_number
from art_cli.terminal.text import masked
from art_cli.types import Scenario, Sequence, StopReason, Trajectory

OVER = "(the episode ended)"
SAME = 1e-9  # tolerance for equal rewards
AROUND = 60  # characters shown around the first difference of a text
KEY = re.compile(r"\$\{oc\.env:\w+\}")  # the replacement that `mask_keys` writes
NEEDED = ("scenario_id", "seed", "scenario", "split", "metrics", "reward_parts", "stop_reason")
LISTS = {  # lists of a row, and the keys that their objects need
    "steps": {"turn", "tool", "arguments", "said", "result"},
    "messages": {"role", "content"},
    "sequences": {"ids", "mask", "engine_logprobs"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """The place where a replay first differs from the record."""

    place: str  # "turn 2, get_order"
    stored: str
    now: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The outcome of a replay of one trajectory."""

    index: int
    num_answers: int  # number of compared answers of the env
    parting: Parting | None
    stored_reward: float | None  # the env's own rewards, without the judge
    reward: float | None
    error: str | None  # why the replay has no reward
    is_chance: bool | None = None  # after a difference: whether two replays differ from each other

    def as_json(self) -> dict[str, Any]:
        """Return the outcome as one JSON object."""
        return asdict(self)


class StoredPlay:
    """An Agent that repeats the actions of a stored trajectory."""

    def __init__(self, row: Row, *, is_builtin: bool, allow_writes: bool) -> None:
        self._row = row
        self._is_builtin = is_builtin
        self._allow_writes = allow_writes
        self.withheld: list[str] = []  # recorded tools that may not be called without consent
        self.num_answers = 0
        self.parting: Parting | None = None

    async def play(self, episode: Episode) -> StopReason:
        """Repeat the recorded requests to the env. Errors of the env propagate."""
        opening = await episode.start()
        if not self._allow_writes:
            called = {step["tool"] for step in self._row["steps"]}
            self.withheld = [name for name in episode.withhold_writes() if name in called]
            if self.withheld:
                raise UsageError(f"it called {named_tools(self.withheld)}")
        said = episode.trajectory.messages
        if self._is_builtin:
            stored = self._opening()
            self.compare("the opening", _texts(stored), _texts(opening))
            said += opening
        steps = self._row["steps"]
        for num in sorted({step["turn"] for step in steps}):
            if self._is_builtin:
                said += self._assistant(num)
            answers = [await self._ask(episode, s) for s in steps if s["turn"] == num]
            said += [a for a in answers if not isinstance(a, Done)] if self._is_builtin else []
            if any(isinstance(answer, Done) for answer in answers):
                if more := [s for s in steps if s["turn"] > num]:
                    self.part(f"turn {num}", f"{_asked(more[0])} followed", OVER)
                return "env"
        ended = self._row["stop_reason"]
        return "env" if ended in ("error", "timeout") else ended

    def record(self, trajectory: Trajectory) -> None:
        """See Agent. Restores the fields that score() may read."""
        if not self._is_builtin:
            trajectory.messages = messages_of(self._row)
            trajectory.side_conversations = self._row.get("side_conversations") or []
        trajectory.policy_versions = self._row.get("policy_versions") or []
        trajectory.truncated = bool(self._row.get("truncated"))
        trajectory.sequences = [
            Sequence(ids=s["ids"], mask=s["mask"], engine_logprobs=s["engine_logprobs"])
            for s in self._row["sequences"]
        ]

    def close(self) -> None:
        """See Agent."""

    def compare(self, place: str, stored: str, now: str) -> None:
        """Record the first difference. Stored text contains no keys, so keys are masked."""
        stored, now = mask_keys(stored), mask_keys(now)
        if stored != now:
            self.part(place, *_around(stored, now))

    async def _ask(self, episode: Episode, step: dict[str, Any]) -> Any:
        """Repeat one step, and compare the results."""
        turn, tool, place = step["turn"], step["tool"], f"turn {step['turn']}, {_asked(step)}"
        if tool is None:
            answer: Any = await episode.reply(step["said"], turn=turn)
            answer = answer if isinstance(answer, Done) else {"role": "user", "content": answer}
        elif tool == "":
            answer = await episode.refuse(step["result"] or "", turn=turn)
        else:
            answer = await episode.call_tool(tool, step["arguments"], turn=turn)
        self.num_answers += 1
        stored, now = step["result"], None if isinstance(answer, Done) else answer["content"]
        if stored is None and now is not None:
            failed = (self._row.get("error") or "").partition("\n")[0]
            self.part(place, f"failed: {failed}" if failed else OVER, now)
        elif stored is not None:
            self.compare(place, stored, OVER if now is None else now)
        return answer

    def part(self, place: str, stored: str, now: str) -> None:
        """Record that the two differ, unless an earlier difference is known."""
        self.parting = self.parting or Parting(place=place, stored=stored, now=now)

    def _opening(self) -> list[Any]:
        messages = messages_of(self._row)
        roles = [m["role"] for m in messages]
        return messages[: roles.index("assistant")] if "assistant" in roles else messages

    def _assistant(self, turn: int) -> list[Any]:
        own = [m for m in messages_of(self._row) if m["role"] == "assistant"]
        return own[turn : turn + 1]


async def replay(
    env: type[Env], settings: Any, row: Row, *, is_builtin: bool, allow_writes: bool
) -> Replay:
    """Replay a stored trajectory. Raise UsageError if that is impossible or not allowed."""
    if not _is_whole(row):
        raise UsageError(
            f"sibling {row.get('index', '?')} cannot be played again: its row lacks what "
            "art stores now; it was made by an older art, or is damaged"
        )
    if masked_key := KEY.search(json.dumps([[s["arguments"], s["said"]] for s in row["steps"]])):
        raise UsageError(
            f"sibling {row.get('index', '?')} cannot be played again: the policy repeated a key, "
            f"and the file has {masked_key[0]} in its place"
        )
    scenario, parting = _scenario(env, settings, row)
    play = StoredPlay(row, is_builtin=is_builtin, allow_writes=allow_writes)
    play.parting = parting
    trajectory = await rollout(env, settings, scenario, play)
    if play.withheld:
        raise UsageError(
            f"sibling {row.get('index', '?')} called tools that may write to the server's own "
            f"data: {named_tools(play.withheld)}. To call them again, run the server on a copy of "
            "the data and give --allow-writes"
        )
    error = (trajectory.error or "").partition("\n")[0]
    if "NoServicesError" in error:
        raise UsageError(
            f"{env.__name__} asks a model in its episodes, whose answers are not stored: such an "
            "episode cannot be played again"
        )
    _compare_ends(play, row, trajectory, error)
    return Replay(
        index=row.get("index", 0),
        num_answers=play.num_answers,
        parting=play.parting,
        stored_reward=reward_parts_of(row).get("env"),
        reward=trajectory.reward,
        error=trajectory.error,
    )


def _is_whole(row: Row) -> bool:
    return all(name in row for name in NEEDED) and all(
        name in row and all(part.keys() >= needed for part in row[name])
        for name, needed in LISTS.items()
    )


def _scenario(env: type[Env], settings: Any, row: Row) -> tuple[Scenario, Parting | None]:
    """Return the scenario as the env creates it now, or otherwise as stored."""
    stored = Scenario(
        id=row["scenario_id"], split=row["split"], seed=row["seed"], data=row["scenario"]
    )
    for scenario in env.scenarios(settings, row["split"]):
        if mask_keys(scenario.id) == mask_keys(stored.id):
            kept, now = (mask_keys_in(_plain(asdict(each))) for each in (stored, scenario))
            if kept == now:
                return scenario, None
            return stored, Parting(place="the scenario", stored=str(kept), now=str(now))
    gone = Parting(place="the scenario", stored=stored.id, now="scenarios() does not give it")
    return stored, gone


def _compare_ends(play: StoredPlay, row: Row, now: Trajectory, error: str) -> None:
    before = (row.get("error") or "").partition("\n")[0]
    error = masked(error)
    if _reason(before) != _reason(error):
        play.part("how it ended", before or "without an error", error or "without an error")
    if error:
        return
    stored, reward = reward_parts_of(row).get("env"), now.reward
    if stored is not None and (reward is None or abs(stored - reward) > SAME):
        play.compare("the reward", repr(stored), repr(reward))
    for name, value in now.metrics.items():
        known = row["metrics"].get(mask_keys(name))
        if not is_number(known) or abs(known - value) > SAME:
            play.compare(f"the metric {name}", repr(known), repr(value))
    play.compare("judge_context()", row.get("judge_context") or "", now.judge_context)


def _reason(error: str) -> str:
    """Return an error without file and line, which change with edits and between machines."""
    return re.sub(r"^\S+:\d+: ", "", error)


def _asked(step: dict[str, Any]) -> str:
    if step["tool"] is None:
        return "reply()"
    return f"{step['tool']}()" if step["tool"] else "a call that could not be read"


def _texts(messages: list[Any]) -> str:
    return "\n".join(str(message.get("content")) for message in messages)


def _around(*texts: str) -> list[str]:
    """Return two texts around their first difference."""
    stored, now = texts
    place = next(
        (n for n, (a, b) in enumerate(zip(stored, now, strict=False)) if a != b),
        min(len(stored), len(now)),
    )
    begin = max(0, place - AROUND)
    dots = "..." if begin else ""
    end = place + AROUND
    return [f"{dots}{t[begin:end]}{'...' if len(t) > end else ''}" or "(nothing)" for t in texts]


def _plain(value: Any) -> Any:
    """Return a value as it appears in a file of trajectories."""
    return json.loads(json.dumps(value, default=str))
