"""Environments of verifiers 0.1 to 0.3: the result of a package's load_environment()."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from importlib import import_module
from itertools import islice
from typing import Any


class Classic:
    """Implements Played: an environment with its data sets and its rubric."""

    def __init__(self, name: str, args: dict[str, Any], tasks: int | None) -> None:
        """Load the environment. Raise ValueError if it cannot be loaded or played."""
        vf = import_module("verifiers")
        try:
            found = vf.load_environment(name, **args)
        except Exception as e:
            why = f"{type(e).__name__}: {e}"
            raise ValueError(
                f"verifiers cannot load {name!r}: {why} (tasksets need verifiers 0.4)"
            ) from e
        if not isinstance(found, vf.Environment):
            raise ValueError(f"{name}: load_environment() gives no Environment of verifiers")
        if found.rubric._get_group_reward_funcs():
            raise ValueError(f"{name}: its rubric compares siblings, which an env of art cannot do")
        found.build_eval_dataset()
        self.name = name
        self.theirs = found
        self.train = list(islice(found.get_dataset(), tasks))
        self.test = list(found.eval_dataset or ())
        self.max_turns = getattr(found, "max_turns", -1)
        self.cut_off: type[Exception] = import_module("verifiers.errors").OverlongPromptError

    def rollout(self, row: Any, respond: Any) -> Coroutine[Any, Any, Any]:
        """See Played."""
        return self.theirs.rollout(dict(row), _client(respond), "policy", {})

    def answer(self, text: str, calls: list[dict[str, str]]) -> Any:
        """See Played."""
        types = import_module("verifiers.types")
        said = types.ResponseMessage(
            content=text,
            tool_calls=[types.ToolCall(**call) for call in calls] or None,
            finish_reason="tool_calls" if calls else "stop",
            is_truncated=False,
        )
        return types.Response(id="", created=0, model="policy", message=said)

    async def score(self, result: Any) -> tuple[float, dict[str, float]]:
        """See Played."""
        if result.get("error") is not None:
            raise RuntimeError(f"{self.name} failed: {result['error']!r}")
        await self.theirs.rubric.score_rollout(result)
        metrics = {name: float(value) for name, value in (result["metrics"] or {}).items()}
        return float(result["reward"]), metrics

    def reference(self, row: Any) -> str:
        """See Played."""
        return str(row.get("answer") or "")


def _client(respond: Callable[[list[Any], list[Any]], Any]) -> Any:
    """Return a client of verifiers whose model is `respond`."""
    base = import_module("verifiers.clients.client").Client

    async def get_response(
        self: Any, prompt: Any, model: str, sampling_args: Any, tools: Any = None, **more: Any
    ) -> Any:
        return await respond(prompt, tools or [])

    made = type("Policy", (base,), {"get_response": get_response})
    made.__abstractmethods__ = frozenset()  # what they do is only asked for by what is replaced
    return made(None)
