"""All errors, sorted by who can mend them. The command line turns each into its exit code.

    ArtError                  1    it failed
    ├── UsageError            2    the user's input is wrong
    │   ├── ConfigError       2    mistakes in a config, each with its place
    │   └── ConstraintError   2    an answer cannot be held to what was asked
    ├── PreflightError        3    this machine or a service is not ready
    ├── EnvError              1    no training is possible with this env
    ├── EngineError           1    the engine died, or holds other weights
    ├── TrainerError          1    the update cannot go on
    ├── CheckpointError       1    a checkpoint is damaged
    ├── LLMError              1    a model that was asked gave no answer
    ├── AgentError            1    a program failed through no fault of its play
    ├── JudgeError            1    no scores that can be used
    ├── BudgetError           4    the money is spent
    └── Interrupted         130    the user asked to stop

Within an episode, an error of the env, of a model that it asks or of an agent ends that one alone:
`rollout()` is the boundary, which leaves it without a reward and says why. So does each class above
that the env's own code raises. Where art itself raises one within a call of the env and means the
run (the budget is spent), it marks the error: `ending_run()`.
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
    """Return " Did you mean ...?" with the known name that is most like this one, or ""."""
    close = get_close_matches(name, known, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


class ArtError(Exception):
    """A failure with a message for the user: what went wrong, where, and what to do."""

    exit_code = EXIT_FAILED
    ends_run = False  # whether art raised it within an env's call, and means the run

    def ending_run(self) -> Self:
        """Return this error, marked as one that ends the run wherever it is raised."""
        self.ends_run = True
        return self

    def __str__(self) -> str:
        """Return the message without what the environment alone should know."""
        return masked(super().__str__())


class UsageError(ArtError):
    """The user's input is wrong: a command line, a config, an env or a model that is not usable."""

    exit_code = EXIT_USAGE


class ConfigError(UsageError):
    """One or more mistakes in a config; each is a full line with its place."""

    def __init__(self, problems: list[str], shown: str | None = None) -> None:
        """`shown` is how a terminal has them, if not as lines."""
        self.problems = [masked(problem) for problem in problems]
        super().__init__("\n".join(problems) if shown is None else shown)


class ConstraintError(UsageError):
    """An answer cannot be held to a schema: it is not supported, or no answer can meet it."""


class PreflightError(ArtError):
    """The input is right but this machine or a service is not ready for it."""

    exit_code = EXIT_PREFLIGHT


class EnvError(ArtError):
    """The env failed so often that no training is possible."""


class EngineError(ArtError):
    """The engine cannot generate: it died, or it does not hold the policy that it should."""


class CheckpointError(ArtError):
    """The files of a checkpoint differ from what was written into them."""


class TrainerError(ArtError):
    """The update cannot go on: numbers are not finite, or a checkpoint could not be written."""


class LLMError(ArtError):
    """A model that was asked over the network gave no answer, after all retries and fallbacks."""


class AgentError(ArtError):
    """An agent of the user's failed, and nothing is to be learned from that."""


class JudgeError(ArtError):
    """The judge gave no usable scores. A group without scores is never trained on as a zero."""


class BudgetError(ArtError):
    """The money that the user allowed is spent; the run is saved and can be resumed."""

    exit_code = EXIT_BUDGET


class Interrupted(ArtError):
    """The user asked to stop; the run is saved and can be resumed."""

    exit_code = EXIT_INTERRUPTED


class PlacedError(Exception):
    """Something of the user's code is wrong; the text begins with its file and line."""


class RemoteError(PlacedError):
    """An env in an interpreter of its own raised something; its text is what `blame` gave there."""


def blame(error: BaseException, owner: Path | type) -> str:
    """`file:line: Type: message`, of the innermost frame in the user's own file, or of any."""
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
    except Exception as e:  # it is the user's class
        said = f"(its text could not be had: {type(e).__name__})"
    return f"{place}{type(error).__name__}: {said}"
