"""Checks of an env before any episode: scenarios, tools, demonstrations."""

from __future__ import annotations

import copy
import inspect
import json
import re
import time
import warnings
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from itertools import takewhile
from typing import Any

from art_cli.chat.tool_formats.names import API, PYTHON, ToolNames
from art_cli.envs.base import Env, NoServices, NoServicesError
from art_cli.envs.returned import opening_of, tools_in
from art_cli.envs.tools import Tool, ToolSpec, named_tools, tools_of
from art_cli.preflight.check_result import CheckResults, failed, ok, place_of, skipped, warning
from art_cli.preflight.envs.duplicates import Known
from art_cli.preflight.envs.state import UNUSUAL, drawn_from, generators, seeded_generators
from art_cli.preflight.envs.subject import NUM_DEMONSTRATIONS, Subject
from art_cli.preflight.envs.watch import Stuck
from art_cli.rollout.lifetime import Lifetime
from art_cli.types import Message, Scenario, Split

FEWEST: dict[Split, int] = {"train": 20, "val": 10, "test": 10}
TOO_FEW = "a policy learns them by heart", "what is measured on them is mostly luck"
ROLES = ("system", "user", "assistant", "tool")
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")  # as OpenAI's protocol requires
OPENINGS_FOR = 10.0  # seconds to search the scenarios for the openings of demonstrations
ALLOW_WRITES = (
    "to have them called with made-up arguments, run the server on a copy of the data and give "
    "--allow-writes; one that only reads says so by its readOnlyHint (MCP), or is a GET (OpenAPI)"
)
SEEDED = "draw from random.Random(<a constant>) or from the seed, never from `random` or a set"


def check_scenarios(s: Subject) -> CheckResults:
    """Check that scenarios exist, are well formed, and are the same at every call."""
    where = place_of(s.env_class, "scenarios")
    ids: set[str] = set()
    for split, first in s.scenarios.items():
        if not first:
            found = failed if split == "train" else warning
            yield found(f"there is no {split} scenario", where)
        elif len(first) < FEWEST[split]:
            what = f"there are only {len(first)} {split} scenarios, fewer than {FEWEST[split]}"
            yield warning(what, where, TOO_FEW[split != "train"])
        with seeded_generators(UNUSUAL):
            before = generators()
            again = s.list_scenarios(split)
            drawn = drawn_from(before)
        for i, (a, b) in enumerate(zip(first, again, strict=False)):
            if content(a) != content(b):
                what = f"scenarios({split!r}) gives another #{i} at each call: {a.id!r} is not the"
                yield failed(f"{what} same", where, SEEDED)
                break
        if drawn:
            what = f"scenarios({split!r}) changes the global generator of {' and of '.join(drawn)}"
            yield failed(what, where, SEEDED)
        wrong = next((p for p in map(_malformed, first) if p), None)
        if wrong:
            yield failed(wrong, where)
        if strange := next((x for x in first if x.split != split), None):
            yield failed(f"{strange.id!r} of {split} says that it is of {strange.split}", where)
        twice = next((x.id for x in first if x.id in ids or ids.add(x.id)), None)
        if twice is not None:
            yield failed(f"the id {twice!r} occurs twice", where, "ids are unique over all splits")
    counts = ", ".join(f"{len(found)} {split}" for split, found in s.scenarios.items())
    yield ok(f"{counts}; the same at every call")


def content(scenario: Scenario) -> str:
    """Return a scenario as text, for comparisons."""
    parts = [scenario.id, scenario.split, scenario.seed, scenario.data]
    return json.dumps(parts, sort_keys=True, default=repr)


def _malformed(scenario: Scenario) -> str:
    if not isinstance(scenario.seed, int):
        return f"the seed of {scenario.id!r} is {scenario.seed!r}, not an integer"
    try:
        text = json.dumps(scenario.data, allow_nan=False)
    except (TypeError, ValueError) as e:
        return f"the data of {scenario.id!r} is not plain JSON: {e}"
    if json.loads(text) != scenario.data:
        return f"the data of {scenario.id!r} is not plain JSON: a tuple, or a key that is no text"
    return ""


def check_splits(s: Subject) -> CheckResults:
    """Check that no held-out scenario occurs in training."""
    where = place_of(s.env_class, "scenarios")
    todo = "choose the split by the content (a hash of it), or give each split its own seeds"
    tasks = {split: {_task(x): x.id for x in found} for split, found in s.scenarios.items()}
    for one, other in (("train", "val"), ("train", "test"), ("val", "test")):
        shared = tasks[one].keys() & tasks[other].keys()
        for key in sorted(shared)[:1]:
            what = f"{len(shared)} of {len(tasks[other])} {other} scenarios are in {one} too, "
            a, b = tasks[other][key], tasks[one][key]
            yield failed(f"{what}the first {a!r} as {b!r}", where, todo)
    train = [x for x in s.scenarios["train"] if x.data]
    is_the_task = 2 * len({_data(x) for x in train}) > len(train)  # else it is a setting
    if train and is_the_task:
        known = Known(train)
        for split in ("val", "test"):
            found = [(x, y) for x in s.scenarios[split] if x.data and (y := known.find(x))]
            again = [(x.id, y.id) for x, y in found if _task(x) != _task(y)]
            if again:
                what = f"{len(again)} {split} scenarios have nearly the data of one of train: the "
                what += f"first {again[0][0]!r} as {again[0][1]!r}; a leak, if the data is the task"
                yield warning(what, where, "leave these out of train, or split by what they say")
    yield ok("no held-out scenario is in train")


def _task(x: Scenario) -> str:
    return f"{x.seed} {_data(x)}" if x.data else str(x.seed)


def _data(x: Scenario) -> str:
    return json.dumps(x.data, sort_keys=True, default=repr)


def check_tools(s: Subject) -> CheckResults:
    """Check that each tool's schema describes its purpose and its arguments to a model."""
    try:
        tools = tools_of(s.env_class)
    except Exception as e:  # whatever pydantic or a type hint says
        what = f"a tool has no schema: {type(e).__name__}: {e}".partition("\n")[0]
        todo = "arguments are str, int, float, bool, Literal, lists, dicts or pydantic models"
        yield failed(what, place_of(s.env_class), todo)
        return
    for name, spec in tools.items():
        where = place_of(s.env_class, spec.method)
        for what, todo in _lacks(getattr(s.env_class, spec.method), spec):
            yield failed(f"{name}: {what}", where, todo)
    given: list[Tool] = []
    if s.env_class.tools is not Env.tools:
        try:
            given = s.watch.run_async(
                lambda: _given(s, s.scenarios["train"][0]), s.options.timeout, "start()"
            )
        except Stuck:
            raise
        except Exception:  # reported by the check that plays episodes
            yield skipped("the result of tools() is unknown: no episode starts")
            return
        where = place_of(s.env_class, "tools")
        for what, todo in _lacks_given([tool for tool in given if tool.name not in tools]):
            yield warning(f"tools(): {what}", where, todo)  # they may be a server's tools
    if s.env_class.has_side_effects and not s.options.allow_writes:
        all_tools = given or [spec.tool() for spec in tools.values()]
        if withheld := [tool.name for tool in all_tools if tool.writes]:
            what = "not called, as they may write to the server's own data, and what they change "
            yield warning(f"{what}stays: {named_tools(withheld)}", todo=ALLOW_WRITES)
    names = [tool.name for tool in given] or list(tools)
    how = " in an episode" if given else ""
    yield ok(f"{len(names)}{how}: {', '.join(names)}" if names else "the env has none")
    schemas = [tool.schema() for tool in given or [spec.tool() for spec in tools.values()]]
    for who, spelling in (("behind an API", API), ("that calls in Python", PYTHON)):
        if shown := ToolNames(schemas, spelling).listed():
            yield ok(f"names that a model {who} knows: {', '.join(shown)}")


def _lacks_given(tools: list[Tool]) -> Iterator[tuple[str, str]]:
    """Yield (problem, remedy) for each problem of the tools that an episode offers."""
    if odd := [tool.name for tool in tools if not TOOL_NAME.fullmatch(tool.name)]:
        todo = "rename it, or let models behind an API know it by another name"
        yield f"a name is not of a-z, 0-9, _ and -, or over 64 long: {', '.join(odd)}", todo
    if bare := [tool.name for tool in tools if not tool.description]:
        yield f"no description: {', '.join(bare)}", "write one: the model reads it"
    if wrong := [tool.name for tool in tools if tool.parameters.get("type") != "object"]:
        todo = 'give {"type": "object", "properties": {...}}'
        yield f"the parameters are no schema of an object: {', '.join(wrong)}", todo


async def _given(s: Subject, scenario: Scenario) -> list[Tool]:
    """Return the tools of an episode after its start()."""
    async with _begun(s, scenario) as (env, _):
        return tools_in(type(env), env.tools())


def _lacks(method: Any, spec: ToolSpec) -> Iterator[tuple[str, str]]:
    """Yield (problem, remedy) for each problem of a tool."""
    if not TOOL_NAME.fullmatch(spec.name):
        yield "the name is not of a-z, 0-9, _ and -", "rename it"
    if not spec.description:
        yield "it has no description", "write a docstring: the model reads it"
    for parameter in list(inspect.signature(method).parameters.values())[1:]:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            yield f"a model cannot give {parameter}", "name each argument"
        elif parameter.annotation is parameter.empty:
            todo = f"annotate it, as in {parameter.name}: str"
            yield f"the argument {parameter.name} has no type", todo
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # such as a default that is not JSON
            json.dumps(spec.schema())
    except Exception as e:
        yield f"its schema is not JSON: {e}".partition("\n")[0], "use plainer types"


def check_demonstrations(s: Subject) -> CheckResults:
    """Check that demonstrations are complete, the same at every call, and not of held-out data."""
    where = place_of(s.env_class, "demonstrations")
    found = s.demonstrations
    if not found:
        yield ok("the env has none")
        return
    if len(found) > NUM_DEMONSTRATIONS:
        yield failed(f"there are more than the num={NUM_DEMONSTRATIONS} asked for", where)
    one = s.env_class(s.scenarios["train"][0], s.settings)
    wrong = next((p for i, d in enumerate(found) if (p := _not_whole(i, d, one.max_turns))), None)
    if wrong:
        yield failed(wrong, where)
        return
    if s.list_demonstrations() != found:
        yield failed("they are others at each call", where, SEEDED)
    held_out = s.watch.run_async(
        lambda: _of_held_out(s, found), OPENINGS_FOR + s.options.timeout, "start()"
    )
    if held_out:
        what = f"#{held_out[0][0]} begins as the held-out scenario {held_out[0][1]!r} does"
        what += f" and no train scenario ({len(held_out)} of {len(found)} do so)"
        yield failed(what, where, 'take the scenarios of cls.scenarios(cfg, "train")')
    yield ok(f"{len(found)} looked at, whole, of train scenarios")


def _not_whole(i: int, demonstration: Any, max_turns: int) -> str:
    messages = demonstration if isinstance(demonstration, list) else []
    for m in messages:
        if not isinstance(m, dict) or m.get("role") not in ROLES:
            return f"#{i} has a message without a role: {m!r:.80}"
        if not isinstance(m.get("content"), str):
            return f"#{i} has a message whose content is not text: {m!r:.80}"
    roles = [m["role"] for m in messages]
    if roles[-1:] == ["assistant"] or roles.count("assistant") == max_turns:  # or cut at max_turns
        return ""
    return f"#{i} does not end with an assistant turn, but with {(roles or ['nothing'])[-1]}"


async def _of_held_out(s: Subject, found: list[list[Message]]) -> list[tuple[int, str]]:
    """Return (number, scenario) of demonstrations whose opening only held-out scenarios have."""
    began = time.monotonic()
    first_parts = (takewhile(lambda m: m["role"] != "assistant", d) for d in found)
    wanted = {_text(part): i for i, part in enumerate(first_parts)}
    suspects: dict[str, tuple[int, str]] = {}
    for split in ("val", "test", "train"):
        for scenario in s.scenarios[split]:
            is_late = time.monotonic() - began > OPENINGS_FOR
            if is_late or (split == "train" and not suspects):
                return []
            key = await _opening_of(s, scenario)
            if split == "train":
                suspects.pop(key, None)
            elif key in wanted:
                suspects[key] = wanted[key], scenario.id
    return list(suspects.values())


async def _opening_of(s: Subject, scenario: Scenario) -> str:
    try:
        async with _begun(s, scenario) as (env, started):
            return _text(opening_of(env, "start", started))
    except NoServicesError:
        return ""


@asynccontextmanager
async def _begun(s: Subject, scenario: Scenario) -> AsyncIterator[tuple[Env, Any]]:
    """Yield an env whose episode has started, and the result of start()."""
    env = s.env_class(copy.deepcopy(scenario), s.settings)
    env.services = NoServices()
    lifetime = Lifetime(env)
    try:
        yield env, await lifetime.start(s.options.timeout)
    finally:
        await lifetime.close()


def _text(messages: Iterable[Message]) -> str:
    return "\n".join(f"{m['role']}: {m['content']}" for m in messages)
