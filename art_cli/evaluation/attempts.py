"""Files of evaluated episodes, with one line per episode.

A file belongs to one candidate at one task. Its name is the hash of everything that determines how
the candidate plays (identity.py). Lines are only appended. An incomplete line (kill -9, full disk)
is ignored, and so are all lines before a line FORGET.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from art_cli.errors import ArtError
from art_cli.keys import mask_keys, mask_keys_in
from art_cli.system.files import ends_torn, json_line, read_lines, to_append
from art_cli.system.untrusted import is_number, wrong_field
from art_cli.terminal.text import masked
from art_cli.types import Message, Scenario, Trajectory

FORGET = {"forget": True}
FIELDS: dict[Any, tuple[str, ...]] = {  # fields of an attempt, by type
    str: ("scenario", "digest", "stop_reason", "judge_context"),
    int: ("trial", "num_turns", "num_tokens", "num_tool_results", "num_tool_errors", "truncated"),
    int | float: ("usd", "seconds"),
    int | float | None: ("reward",),
    str | None: ("error",),
    dict: ("tags", "metrics"),
    list: ("messages",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One trial of one candidate at one scenario."""

    scenario: str  # its id
    digest: str  # of the whole scenario, because ids may be reused
    trial: int
    tags: dict[str, str]  # the scenario's seat, level and kind
    reward: float | None  # None: it failed and is not stored, or needs a judge
    metrics: dict[str, float]  # the env's own
    stop_reason: str
    truncated: bool
    num_turns: int
    num_tokens: int  # written by the candidate
    num_tool_results: int
    num_tool_errors: int
    usd: float  # US dollars, including a simulated user's
    seconds: float
    messages: list[Message]
    judge_context: str  # the actual outcome according to the env
    error: str | None

    @property
    def place(self) -> tuple[str, int]:
        """The episode that this attempt belongs to."""
        return self.digest, self.trial

    @classmethod
    def of(cls, t: Trajectory, trial: int) -> Attempt:
        """Return the attempt of a trajectory, without training data and with keys masked.

        Keys are masked here, so that a judge reads the same from a stored attempt.
        """
        return cls(
            scenario=mask_keys(t.scenario.id),
            digest=digest_of(t.scenario),
            trial=trial,
            tags=mask_keys_in(t.scenario.tags),
            reward=t.reward,
            metrics=mask_keys_in(t.all_metrics),
            stop_reason=t.stop_reason,
            truncated=t.truncated,
            num_turns=t.num_turns,
            num_tokens=t.num_sampled or t.num_written,
            num_tool_results=sum(s.tool is not None and s.result is not None for s in t.steps),
            num_tool_errors=t.num_tool_errors,
            usd=t.usd,
            seconds=t.duration,
            messages=mask_keys_in(t.messages),
            judge_context=mask_keys(t.judge_context),
            error=t.error and masked(t.error),
        )


def digest_of(scenario: Scenario) -> str:
    """Return a digest of the whole scenario."""
    content = json.dumps(asdict(scenario), sort_keys=True, default=str)
    return hashlib.sha256(content.encode(errors="surrogatepass")).hexdigest()[:16]


def _wrong(row: dict[str, Any]) -> str | None:
    """Return the name of an invalid field, as from a flipped bit, or None."""
    if wrong := wrong_field(row, FIELDS):
        return wrong
    if not all(isinstance(v, bool) or is_number(v) for v in row["metrics"].values()):
        return "metrics"
    if not all(isinstance(v, str) for v in row["tags"].values()):
        return "tags"
    said = (wrong_field(message, {str: ("role", "content")}) for message in row["messages"])
    return "messages" if any(said) else None


class AttemptStore:
    """The finished attempts of one candidate, on disk."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._torn = False
        self.damaged: list[str] = []  # messages about lines that `read` could not parse

    def read(self) -> dict[tuple[str, int], Attempt]:
        """Return all finished attempts, by `Attempt.place`."""
        names = {f.name for f in fields(Attempt)}
        found: dict[tuple[str, int], Attempt] = {}
        self._torn = ends_torn(self._file)
        rows, self.damaged = read_lines(self._file)
        for row in rows:
            if row == FORGET:
                found.clear()
            elif row.keys() == names:
                if wrong := _wrong(row):
                    what = f"an episode whose {wrong} is damaged, and left out"
                    self.damaged.append(f"{self._file}: {what}")
                    continue
                attempt = Attempt(**row)
                found[attempt.place] = attempt
        return found

    def add(self, attempt: Attempt, identity: Any) -> None:
        """Append an attempt. A new file starts with the identity in its name. Raises ArtError."""
        head = "" if self._file.exists() else masked(json_line({"identity": identity}))
        self._append(head + json_line(asdict(attempt)))

    def forget(self) -> None:
        """Ignore all earlier attempts from now on. Raises ArtError."""
        if self._file.exists():
            self._append(json_line(FORGET))

    def _append(self, lines: str) -> None:
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with open(
                self._file, "a", encoding="utf-8", errors="replace", opener=to_append
            ) as file:
                file.write("\n" * self._torn + lines)
        except OSError as e:
            raise ArtError(f"cannot write {self._file}: {e.strerror}. Its content is valid") from e
        self._torn = False
