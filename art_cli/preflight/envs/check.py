"""All checks of an env, in order, like those of a reviewer of a pull request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from art_cli.envs.base import Env
from art_cli.preflight.check_result import (
    CheckResult,
    CheckResults,
    failed,
    ok,
    skipped,
    warning,
    where_and_what,
)
from art_cli.preflight.envs.concurrency import check_concurrency
from art_cli.preflight.envs.deadlines import check_deadlines
from art_cli.preflight.envs.episodes import (
    check_bad_answers,
    check_episodes,
    check_randomness,
    check_replay,
)
from art_cli.preflight.envs.exploits import check_exploits
from art_cli.preflight.envs.files import check_files
from art_cli.preflight.envs.instances import (
    check_demonstrations,
    check_scenarios,
    check_splits,
    check_tools,
)
from art_cli.preflight.envs.rewards import check_easy_rewards, check_gold
from art_cli.preflight.envs.subject import Options, Subject
from art_cli.preflight.envs.turns import check_keys, check_prompt, check_turns
from art_cli.preflight.envs.watch import Stuck


def check_settings(s: Subject) -> CheckResults:
    """Report the models that are left out. The settings were validated when they were read."""
    if s.models_off:
        names = ", ".join(f"{name}=null" for name in s.models_off)
        yield warning(f"no model is called here: checked with {names}")
    yield ok(f"{type(s.settings).__qualname__} is valid")


CHECKS: dict[str, Callable[[Subject], CheckResults]] = {
    "settings": check_settings,
    "scenarios": check_scenarios,
    "splits": check_splits,
    "tools": check_tools,
    "demonstrations": check_demonstrations,
    "episodes": check_episodes,
    "files": check_files,
    "turns": check_turns,
    "bad answers": check_bad_answers,
    "replay": check_replay,
    "randomness": check_randomness,
    "concurrency": check_concurrency,
    "deadlines": check_deadlines,
    "easy rewards": check_easy_rewards,
    "gold": check_gold,
    "exploits": check_exploits,
    "prompt": check_prompt,
    "keys": check_keys,
}


def check(
    use: str,
    env_class: type[Env],
    settings: Any,
    options: Options | None = None,
    report: Callable[[str], None] = lambda name: None,
) -> Iterator[CheckResult]:
    """Yield the results of each check as soon as they are known, at least one per check.

    `report` is called with the name of each check before it starts.

    No error of the env ends the checks: an exception becomes a result. So does a call that hangs,
    after which no more episodes are played.
    """
    subject = Subject(use, env_class, settings, options or Options())
    known: set[str] = set()  # messages of errors that are already reported
    stuck = False
    for name, function in CHECKS.items():
        found: list[CheckResult] = []
        report(name)
        try:
            found += [skipped("the env is stuck")] if stuck else function(subject)
        except Stuck as e:
            stuck = True
            found.append(failed(str(e), e.where, e.todo))
        except Exception as e:
            where, what = where_and_what(e, env_class)
            found.append(skipped(f"for {what}") if what in known else failed(what, where))
            known.add(what)
        if any(f.status != "ok" for f in found):
            found = [f for f in found if f.status != "ok"]
        yield from (replace(f, check=name) for f in found)
    subject.watch.close()
