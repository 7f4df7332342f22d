"""The package tau2-bench: its modules, imported when needed, its tasks and their splits."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

from art_cli import Split, UsageError
from art_envs.adapters.library import library

EXTRA = "tau2"
DOMAINS = {
    "retail": "changes, returns and questions about orders",
    "airline": "about flights",
    "telecom": "phones that do not work; the customer has tools too",
}
BASIS = {"DB", "COMMUNICATE", "ENV_ASSERTION", "ACTION"}  # criteria of a reward; a model judges NL
EVERY = 5  # one in this number of train tasks is val, because tau2 has no val split


def module(name: str) -> Any:
    """Return a module of tau2, with its logging off and without a download of model prices."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    library("tau2", EXTRA)
    library("loguru", EXTRA).logger.disable("tau2")
    return library(f"tau2.{name}", EXTRA)


def message(kind: str, **fields: Any) -> Any:
    """Return one of tau2's messages or calls."""
    return getattr(module("data_model.message"), kind)(**fields)


def environment_of(domain: str) -> Any:
    """Return the module that defines a domain's environments and tasks."""
    return module(f"domains.{domain}.environment")


def sets_of(domain: str) -> dict[str, int]:
    """Return the number of tasks in each of a domain's sets, the default set first."""
    found = environment_of(domain).get_tasks_split()
    return {name: len(found[name]) for name in ("base", "small", "full") if name in found}


@lru_cache(maxsize=8)
def tasks_of(domain: str, tasks: str) -> dict[str, Any]:
    """Return the tasks of one of a domain's sets by their id.

    Raise ValueError if tau2 is not installed or the domain does not have the set.
    """
    if tasks not in (sets := sets_of(domain)):
        raise ValueError(f"{domain} has no tasks={tasks}; it has {', '.join(sets)}")
    found = environment_of(domain).get_tasks(tasks)
    return {task.id: task for task in found if {*task.evaluation_criteria.reward_basis} <= BASIS}


def task_of(domain: str, tasks: str, name: str) -> Any:
    """Return a task. Raise UsageError if the set has no task of that id."""
    try:
        return tasks_of(domain, tasks)[name]
    except KeyError:
        known = f"`art envs tasks tau2` lists the sets of tasks; one here is {_one(domain, tasks)}"
        raise UsageError(f"tau2's {domain}, tasks={tasks}, has no task {name!r}; {known}") from None


def _one(domain: str, tasks: str) -> str:
    return repr(next(iter(tasks_of(domain, tasks))))


@lru_cache(maxsize=8)
def split_of(domain: str, tasks: str) -> dict[Split, list[str]]:
    """Return tau2's own split of a set of tasks; the rest of the tasks is train and val.

    If tau2 has no test tasks in the set, as in its small set, every fifth task is test.
    """
    known = list(tasks_of(domain, tasks))
    theirs = set(environment_of(domain).get_tasks_split()["test"])
    test = [task for task in known if task in theirs] or known[1::EVERY]
    rest = [task for task in known if task not in test]
    val = rest[::EVERY]
    return {"train": [task for task in rest if task not in val], "val": val, "test": test}
