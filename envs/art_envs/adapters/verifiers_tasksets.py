"""Tasksets of verifiers 0.4: tasks, and the harness that plays them against an OpenAI endpoint.

The library has no model object that could be replaced: its agents ask a URL, as they do when
prime-rl trains them. Here that is an endpoint of ours, where the policy answers.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from art_envs.adapters.endpoint import endpoint
from art_envs.adapters.shared import Shared

PLUGINS = Path(__file__).parent / "verifiers_plugins"


class CutOffError(Exception):
    """The policy's part of the episode is over: its context is full or its turns are used up."""


class PolicyTaskset:
    """Implements Played: a taskset, and the environment in which its episodes are played."""

    max_turns = -1  # args.agent.max_turns is the library's own limit, which the library enforces
    cut_off: type[Exception] = CutOffError

    def __init__(self, name: str, args: dict[str, Any], tasks: int | None) -> None:
        """Load the taskset. Raise ValueError if it cannot be loaded or played."""
        self._vf = import_module("verifiers.v1")
        self.name = name
        try:
            self._config, self._seat = _config(self._vf, name, args)
            taskset = self._vf.load_taskset(self._config.taskset)
            if tasks is None and not taskset.bounded:
                raise ValueError("its tasks have no end: say how many to play in args.tasks")
            self.train = list(islice(taskset, tasks))
            self._env = self._vf.load_environment(self._config)
        except (ImportError, AttributeError, TypeError) as e:
            raise ValueError(
                f"verifiers 0.4 cannot load the taskset {name!r}: {e} (an environment with a "
                "load_environment() needs 'verifiers>=0.1.14,<0.4')"
            ) from e
        except ValidationError as e:
            found = (f"args.{'.'.join(map(str, x['loc']))}: {x['msg']}" for x in e.errors())
            raise ValueError(
                f"verifiers refuses the settings of {name!r}: {'; '.join(found)}"
            ) from e
        except Exception as e:
            why = e if isinstance(e, ValueError) else f"{type(e).__name__}: {e}"
            raise ValueError(f"verifiers cannot play {name!r}: {why}") from e
        self.test: list[Any] = []
        self._model: Any = None  # set while the environment is served
        self._asked: dict[str, tuple[Any, Any]] = {}  # of open rollouts: who answers, and the trace
        self._serving = Shared(self._serve)

    async def rollout(self, row: Any, respond: Any) -> Any:
        """See Played."""
        ids = []

        def minted(trace: Any) -> None:
            if trace.agent.name == self._seat:
                ids.append(trace.id)
                self._asked[trace.id] = respond, trace

        try:
            async with self._serving.used():
                result = await self._env.run_episode(row, self._model, on_trace=minted)
        finally:
            for each in ids:
                del self._asked[each]
        if not result.ok:
            errors = [*result.errors, *(e for trace in result.traces for e in trace.errors)]
            raise RuntimeError(f"{self.name} failed: {errors[0].type}: {errors[0].message}")
        return result

    def answer(self, text: str, calls: list[dict[str, str]]) -> dict[str, Any]:
        """See Played."""
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if calls:
            message["tool_calls"] = [
                {
                    "id": call["id"],
                    "type": "function",
                    "function": {"name": call["name"], "arguments": call["arguments"]},
                }
                for call in calls
            ]
        return message

    async def score(self, result: Any) -> tuple[float, dict[str, float]]:
        """See Played. The reward is that of the agent that the policy plays."""
        trace = next(t for t in reversed(result.traces) if t.agent.name == self._seat)
        parts = {name: r.score for name, r in trace.rewards.items() if r is not None}
        metrics = {k: float(v) for k, v in (parts | trace.metrics).items() if v is not None}
        return float(trace.reward), metrics

    def reference(self, row: Any) -> str:
        """See Played."""
        return str(getattr(row.data, "answer", None) or "")

    @asynccontextmanager
    async def _serve(self) -> AsyncIterator[None]:
        """Start the resources that all episodes share: the model's endpoint and the taskset's
        tools.
        """
        async with endpoint(self._say) as url, self._env.serving():
            client = self._vf.EvalClientConfig(base_url=url)
            self._model = self._vf.ModelContext(model="policy", client=client)
            yield

    async def _say(self, headers: Any, messages: list[Any], tools: list[Any]) -> dict[str, Any]:
        """Return the answer of a rollout's policy, or end its part as the library's limits do."""
        respond, trace = self._asked[headers["X-Session-ID"]]
        try:
            return await respond(messages, tools)
        except CutOffError:
            trace.stop("cut_off")
            return {"role": "assistant", "content": ""}


def _config(vf: Any, name: str, args: dict[str, Any]) -> tuple[Any, str]:
    """Return the library's config of an environment, and the name of the agent that the policy
    plays.

    An agent without a harness setting gets one that only talks and calls the task's tools, instead
    of the library's default `bash`. One that runs no code runs on this machine instead of a Prime
    sandbox. Raise ValueError if it is unclear which agent the policy plays, or if code would run.
    """
    folder, module = "", name
    if name.replace(".", "_").isidentifier():
        folder, _, module = name.rpartition(".")
    for path in (str(PLUGINS), folder.replace(".", os.sep)):
        if path and path not in sys.path:
            sys.path.append(path)  # the library only imports top-level modules
    config = vf.resolve_env_config(args | {"taskset": {**args.get("taskset", {}), "id": module}})
    seats = {key: seat for key, seat in config if isinstance(seat, vf.AgentConfig)}
    policy = [key for key, seat in seats.items() if seat.client is None]
    if len(policy) != 1:
        raise ValueError(
            f"one of its agents ({', '.join(seats)}) can be the policy: give each other one a "
            "model of its own, by args.AGENT: {client: {type: eval, base_url: ...}, model: ...}"
        )
    for key, seat in seats.items():
        is_told = "runtime" in seat.model_fields_set
        runtime = seat.runtime if is_told else vf.SubprocessConfig()
        harness = seat.harness or vf.default_agent_harness(module)
        if seat.harness is None and harness.id == "bash":
            talks = "art_chat" if runtime.type == "subprocess" else "null"
            harness = vf.harness_config_type(talks)(id=talks)
        if vf.load_harness(harness).EXECUTES_CODE and not is_told:
            raise ValueError(
                f"its harness {harness.id} runs what the policy writes: say where, in "
                f"args.{key}.runtime (type: docker, prime; subprocess is this machine)"
            )
        seats[key] = seat.model_copy(update={"harness": harness, "runtime": runtime})
    return config.model_copy(update=seats), policy[0]
