"""A target of the user's own, named by `deploy.use` or `--to`. Its mistakes are told by place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from typing import Any

from art_cli.deploy.base import Deployment, Job, Plan, Source, Target
from art_cli.deploy.store import check_record, wrong_in
from art_cli.envs.user_code import blaming, class_named, make_plugin, settings_of
from art_cli.errors import UsageError

KEY = "deploy.use"
MADE_OF = ("settings",)


def check_target_class(name: str, args: Mapping[str, Any]) -> None:
    """Raise UsageError where the name is of no Target, or `args` do not fit it."""
    settings_of("deploy", class_named(KEY, name, Target, MADE_OF), args)


class UserTarget:
    """Implements Target: the user's own, whose records are checked before they are written."""

    def __init__(self, name: str, args: Mapping[str, Any]) -> None:
        """Raises UsageError where the class cannot be made."""
        self._name = name
        settings = settings_of("deploy", class_named(KEY, name, Target, MADE_OF), args)
        self._target: Target = make_plugin(KEY, name, Target, settings=settings)

    def plan(self, source: Source, name: str) -> Plan:
        """See Target."""
        with self._telling("plan"):
            plan: Any = self._target.plan(source, name)
        return self._fits("plan", plan, Plan)

    def deploy(self, plan: Plan, job: Job) -> None:
        """See Target. Raises UsageError for a deployment that could not be read again."""
        with self._kept("deploy", job) as own:
            self._target.deploy(plan, own)

    def state(self, deployment: Deployment) -> str:
        """See Target."""
        with self._telling("state"):
            state: Any = self._target.state(deployment)
        return self._fits("state", state, str)

    def undeploy(self, job: Job) -> str:
        """See Target."""
        with self._kept("undeploy", job) as own:
            left: Any = self._target.undeploy(own)
        return self._fits("undeploy", left, str)

    def _telling(self, method: str) -> Any:
        return blaming(KEY, self._name, getattr(type(self._target), method))

    def _fits(self, method: str, given: Any, kind: type) -> Any:
        if not isinstance(given, kind):
            said = f"{method}() returned {type(given).__name__}, expected {kind.__name__}"
            raise UsageError(f"{KEY}: {self._name}: {said}")
        return given

    @contextmanager
    def _kept(self, method: str, job: Job) -> Iterator[Job]:
        """Yield the job as the user's code gets it. A record stays one that can be read again."""
        last_good = asdict(job.deployment)

        def keep() -> None:
            nonlocal last_good
            self._check(job.deployment, last_good)
            job.keep()
            last_good = asdict(job.deployment)

        try:
            with self._telling(method):
                yield replace(job, keep=keep)
        except BaseException:
            with suppress(UsageError):
                self._check(job.deployment, last_good)
            raise
        self._check(job.deployment, last_good)

    def _check(self, deployment: Deployment, last_good: dict[str, Any]) -> None:
        """Give a deployment its last good values back where it could not be read again."""
        try:
            check_record(deployment)
        except ValueError as e:
            for key, value in last_good.items():
                setattr(deployment, key, value)
            raise UsageError(f"{KEY}: {self._name} made a wrong record: {wrong_in(e)}") from None
