"""The spans of a step: step > group > episode > turns and tool calls.

    train step 4                        art.step, art.split
      group retail-17                   art.scenario, art.reward_mean
        invoke_agent my-run             art.reward, art.advantage, art.seed, ...
          chat Qwen/Qwen3-8B            gen_ai.input.messages, gen_ai.usage.output_tokens, ...
          execute_tool get_order        gen_ai.tool.call.arguments, gen_ai.tool.call.result

A step is one trace. Ids are derived from an episode's place in the run, so a span that is resent
has the same id. Times of turns are not stored: span times only show the order, in milliseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from statistics import fmean
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from art_cli.config.schema import Experiment
from art_cli.runs.trackers.otlp.messages import Called, ChatTurn, events_of, opening_of
from art_cli.runs.trackers.shorten import shortened
from art_cli.runs.trajectories import reward_parts_of

TICK = 1_000_000  # nanoseconds assigned to each turn and call
SCOPE = InstrumentationScope("art")
Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The run to which spans belong."""

    experiment: Experiment
    run_id: str
    extra: Mapping[str, Any] = field(default_factory=dict)  # attributes of every span

    @property
    def resource(self) -> Resource:
        """The attributes that all spans share, including OTEL_RESOURCE_ATTRIBUTES."""
        cfg = self.experiment
        ours = {"service.name": "art", "art.project": cfg.project, "art.run": cfg.name}
        return Resource.create({**ours, "art.run_id": self.run_id})


def spans_of(
    step: int, split: str, groups: list[list[Row]], origin: Origin, began: int
) -> Iterator[ReadableSpan]:
    """Yield the spans of a step's groups, children first; `began` is in nanoseconds."""
    trace = _Trace(origin, (origin.run_id, split, step), began)
    root, end = trace.context(), began
    place = {"art.step": step, "art.split": split}
    for rows in groups:
        number = rows[0]["group"]
        group, group_end = trace.context(number), began
        for row in rows:
            spans = list(_episode(trace, row, group, place | {"art.group": number}))
            group_end = max(group_end, *(span.end_time or 0 for span in spans))
            yield from spans
        about = place | {"art.group": number} | _of_group(rows)
        name = f"group {rows[0]['scenario_id']}"
        yield trace.span(name, group, root, (began, group_end), about)
        end = max(end, group_end)
    yield trace.span(f"{split} step {step}", root, None, (began, end), place)


def _of_group(rows: list[Row]) -> dict[str, Any]:
    rewards = [row["reward"] for row in rows if row["reward"] is not None]
    mean = fmean(rewards) if rewards else None
    return {"art.scenario": rows[0]["scenario_id"], "art.reward_mean": mean}


def _episode(
    trace: _Trace, row: Row, parent: SpanContext, place: Mapping[str, Any]
) -> Iterator[ReadableSpan]:
    cfg, where = trace.origin.experiment, (row["group"], row["index"])
    me, now = trace.context(*where), trace.began
    talk = {"gen_ai.conversation.id": trace.name_of(*where)}
    last: ChatTurn | None = None
    for number, event in enumerate(events_of(row, cfg.sampling.max_tokens)):
        context, times = trace.context(*where, number), (now, now := now + TICK)
        if isinstance(event, Called):
            yield _call(trace, event, context, me, times, talk)
        else:
            last = event
            about = talk | _of_turn(event, cfg)
            name, kind = f"chat {cfg.model.base}", SpanKind.CLIENT
            yield trace.span(name, context, me, times, about, kind=kind)
    about = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": cfg.engine.use,
        "gen_ai.agent.name": cfg.name,
        "gen_ai.request.model": cfg.model.base,
        "gen_ai.input.messages": _json(opening_of(row)),
        "gen_ai.output.messages": _json([last.said] if last else []),
        "gen_ai.usage.output_tokens": row["num_sampled"],
        "art.index": row["index"],
        "art.scenario": row["scenario_id"],
        "art.seed": row["seed"],
        "art.reward": row["reward"],
        "art.advantage": row["advantage"],
        "art.ended_by": row["stop_reason"],
        "art.truncated": row["truncated"],
        "art.policy_versions": sorted(set(row["policy_versions"])),
        **{f"art.metrics.{key}": value for key, value in row["metrics"].items()},
        **{f"art.reward.{key}": value for key, value in reward_parts_of(row).items()},
    }
    name, times = f"invoke_agent {cfg.name}", (trace.began, max(now, trace.began + TICK))
    about |= {**place, **talk}
    events = _scores(row, times[1])
    yield trace.span(name, me, parent, times, about, error=row["error"], events=events)


def _of_turn(turn: ChatTurn, cfg: Experiment) -> dict[str, Any]:
    read, sampled = turn.tokens or (None, None)
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": cfg.engine.use,
        "gen_ai.request.model": cfg.model.base,
        "gen_ai.request.temperature": cfg.sampling.temperature,
        "gen_ai.request.top_p": cfg.sampling.top_p,
        "gen_ai.request.max_tokens": cfg.sampling.max_tokens,
        "gen_ai.input.messages": _json(turn.read),
        "gen_ai.output.messages": _json([turn.said]),
        "gen_ai.response.finish_reasons": [turn.said["finish_reason"]],
        "gen_ai.usage.input_tokens": read,
        "gen_ai.usage.output_tokens": sampled,
        "art.policy_version": turn.policy_version,
    }


def _call(
    trace: _Trace,
    call: Called,
    context: SpanContext,
    parent: SpanContext,
    times: tuple[int, int],
    talk: Mapping[str, Any],
) -> ReadableSpan:
    about = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": call.name,
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": call.id,
        "gen_ai.tool.call.arguments": _json(call.arguments),
        "gen_ai.tool.call.result": None if call.result is None else shortened(call.result),
        **talk,
    }
    error = f"ToolError: {call.result}" if call.is_error else None
    return trace.span(f"execute_tool {call.name}", context, parent, times, about, error=error)


def _scores(row: Row, at: int) -> list[Event]:
    """Return the reward as an evaluation event of the conventions."""
    if row["reward"] is None:
        return []
    about = {
        "gen_ai.evaluation.name": "reward",
        "gen_ai.evaluation.score.value": float(row["reward"]),
    }
    if words := reward_parts_of(row).get("explanation"):
        about["gen_ai.evaluation.explanation"] = _clean(shortened(words))
    return [Event("gen_ai.evaluation.result", about, at)]


class _Trace:
    """Creates the spans of one trace."""

    def __init__(self, origin: Origin, place: tuple[Any, ...], began: int) -> None:
        self.origin, self.began = origin, began
        self._place, self._resource = place, origin.resource
        self._id = int.from_bytes(_hash(place)[:16])

    def name_of(self, *where: int) -> str:
        """Return a text that identifies a span within the trace."""
        return "/".join(map(str, (*self._place, *where)))

    def context(self, *where: int) -> SpanContext:
        """Return the ids of the span at this place."""
        id = int.from_bytes(_hash((*self._place, "span", *where))[:8])
        return SpanContext(self._id, id, is_remote=False, trace_flags=TraceFlags(1))

    def span(
        self,
        name: str,
        context: SpanContext,
        parent: SpanContext | None,
        times: tuple[int, int],
        about: Mapping[str, Any],
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        error: str | None = None,
        events: list[Event] | None = None,
    ) -> ReadableSpan:
        """Return a finished span, without attributes that are None."""
        attributes = {k: _clean(v) for k, v in about.items() if v is not None}
        line = (error or "").partition("\n")[0]
        if error:
            attributes["error.type"] = line.partition(":")[0]
        return ReadableSpan(
            name=_clean(name),
            context=context,
            parent=parent,
            resource=self._resource,
            attributes=attributes | dict(self.origin.extra),
            events=events or [],
            kind=kind,
            status=Status(StatusCode.ERROR, _clean(line)) if error else Status(),
            start_time=times[0],
            end_time=times[1],
            instrumentation_scope=SCOPE,
        )


def _hash(place: tuple[Any, ...]) -> bytes:
    return sha256("/".join(map(str, place)).encode()).digest()


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _clean(value: Any) -> Any:
    """Replace lone surrogates in a text, which a model may write and cannot be sent."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else value
