"""All errors, sorted by who can fix them. The command line turns each into its exit code.

    ArtError                  1    the command failed
    ├── UsageError            2    the user's input is wrong
    │   ├── ConfigError       2    mistakes in a config, each with its place
    │   └── ConstraintError   2    a schema cannot constrain the answer
    ├── PreflightError        3    this machine or a service is not ready
    ├── EnvError              1    no training is possible with this env
    ├── EngineError           1    the engine died, or holds other weights
    ├── TrainerError          1    the update cannot continue
    ├── CheckpointError       1    a checkpoint is damaged
    ├── LLMError              1    a model behind an API gave no answer
    ├── AgentError            1    a program failed, but not through its play
    ├── JudgeError            1    the judge gave no usable scores
    ├── BudgetError           4    the money is spent
    └── Interrupted         130    the user asked to stop

Within an episode, an error of the env, of a model that it asks, or of an agent ends only that
episode: `rollout()` records the error and leaves the episode without a reward. The same holds for
each class above if the env's own code raises it. If art itself raises an error during a call of the
env and the whole run must end (the budget is spent), it marks the error with `ending_run()`.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Collection
from difflib import get_close_matches
from pathlib import Path
from typing import Self

from art_cli.terminal.text import masked

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_PREFLIGHT = 3
EXIT_BUDGET = 4
EXIT_INTERRUPTED = 130


def did_you_mean(name: str, known: Collection[str]) -> str:
    """Return " Did you mean ...?" with the most similar known name, or "" if none is similar."""
    close = get_close_matches(name, known, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


class ArtError(Exception):
    """A failure with a message for the user: what went wrong, where, and what to do."""

    exit_code = EXIT_FAILED
    ends_run = False  # True if art raised it within an env's call and the whole run must end

    def ending_run(self) -> Self:
        """Return this error, marked as one that ends the run wherever it is raised."""
        self.ends_run = True
        return self

    def __str__(self) -> str:
        """Return the message without secrets of the environment."""
        return masked(super().__str__())


class UsageError(ArtError):
    """The user's input is wrong: a command line, a config, an env or an unusable model."""

    exit_code = EXIT_USAGE


class ConfigError(UsageError):
    """One or more mistakes in a config; each is a full line with its place."""

    def __init__(self, problems: list[str], shown: str | None = None) -> None:
        """`shown` is the text for a terminal, if not the problems as lines."""
        self.problems = [masked(problem) for problem in problems]
        super().__init__("\n".join(problems) if shown is None else shown)


class ConstraintError(UsageError):
    """A schema cannot constrain an answer: it is not supported, or no answer can match it."""


class PreflightError(ArtError):
    """The input is right but this machine or a service is not ready for it."""

    exit_code = EXIT_PREFLIGHT


class EnvError(ArtError):
    """The env fails so often that no training is possible."""


class EngineError(ArtError):
    """The engine cannot generate: it died, or does not hold the current policy."""


class CheckpointError(ArtError):
    """The files of a checkpoint are not as they were written."""


class TrainerError(ArtError):
    """The update cannot continue: numbers are not finite, or a checkpoint cannot be written."""


class LLMError(ArtError):
    """A model behind an API gave no answer, after all retries and fallbacks."""


class AgentError(ArtError):
    """The user's own agent failed in a way that must not be trained on."""


class JudgeError(ArtError):
    """The judge gave no usable scores. Groups without scores are not trained on."""


class BudgetError(ArtError):
    """The user's budget is spent. The run is saved and can be resumed."""

    exit_code = EXIT_BUDGET


class Interrupted(ArtError):
    """The user asked to stop. The run is saved and can be resumed."""

    exit_code = EXIT_INTERRUPTED


class PlacedError(Exception):
    """The user's code has a mistake. The text begins with its file and line."""


class RemoteError(PlacedError):
    """An env in a separate interpreter raised an error. The text is from `blame` over there."""


def blame(error: BaseException, owner: Path | type) -> str:
    """Return `file:line: Type: message` for the innermost frame, preferably in the user's file."""
    if isinstance(error, PlacedError):
        return str(error)
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}: {type(error).__name__}: {error.msg}"
    if isinstance(owner, type):
        owner = Path(getattr(sys.modules.get(owner.__module__), "__file__", None) or "")
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if Path(f.filename).absolute() == owner.absolute()]
    place = "".join(f"{f.filename}:{f.lineno}: " for f in (own or frames)[-1:])
    try:
        said = str(error)
    except Exception as e:  # str() of the user's exception class fails
        said = f"(its text is unavailable: {type(e).__name__})"
    return f"{place}{type(error).__name__}: {said}"
