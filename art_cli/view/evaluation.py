"""An evaluation as one HTML file: its numbers and all conversations."""

from __future__ import annotations

import math
from html import escape
from typing import Any

from art_cli.evaluation.attempts import Attempt
from art_cli.evaluation.comparison import PASS, Column, Comparison, is_sure
from art_cli.evaluation.statistics import Estimate
from art_cli.terminal.text import masked, visible
from art_cli.types import Message
from art_cli.view.frame import evaluation_page

WIDTH, HEIGHT = 120, 14  # of a bar, in pixels


def page(c: Comparison, title: str) -> str:
    """Return the HTML file, in which all text of episodes is escaped."""
    num = max(column.num_scenarios for column in c.columns)
    summary = (
        f"{c.split}: {num} held-out scenarios, {c.trials} {'trials' if c.trials > 1 else 'trial'} "
        f"each. An attempt passed where {c.success}; pass^k is the chance that k attempts at a "
        "scenario all pass. Brackets and whiskers are 95% intervals, by scenario."
    )
    body = f"<p>{escape(summary)}</p>" + "\n".join(_tables(c))
    return evaluation_page(visible(masked(title)), visible(masked(body)), _data(c))


def _tables(c: Comparison) -> list[str]:
    others = [column for column in c.columns if column.candidate.name != c.baseline]
    rows = [(name, [column.metrics.get(name) for column in c.columns]) for name in c.metrics]
    out = ["<h2>Results</h2>", _table(c.columns, [_row(n, es, _scale(n, es)) for n, es in rows])]
    if others:
        gaps = [(name, [column.gaps.get(name) for column in others]) for name in c.metrics]
        out.append(f"<h2>Difference to {escape(c.baseline)}, on the same scenarios</h2>")
        out.append(_table(others, [_gap_row(n, es) for n, es in gaps]))
        out.append('<p class="dim small">Bold: the interval excludes 0.</p>')
    for tag in c.tags:
        values = sorted({v for column in c.columns for v in column.by.get(tag, {})})
        found = [
            (v, [column.by.get(tag, {}).get(v, {}).get(f"{PASS}1") for column in c.columns])
            for v in values
        ]
        out.append(f"<h2>{PASS}1 by {tag}</h2>")
        out.append(_table(c.columns, [_row(v, es, (0.0, 1.0)) for v, es in found]))
    failed = [(column, line) for column in c.columns for line in column.errors]
    if failed:
        out.append("<h2>Failed episodes, which count for nobody</h2><ul>")
        out += [f"<li>{escape(f'{x.candidate.name}: {line}')}</li>" for x, line in failed]
        out.append("</ul>")
    return out


def _table(columns: list[Column], rows: list[str]) -> str:
    heads = "".join(f"<th>{escape(column.candidate.name)}</th>" for column in columns)
    head = f'<div class="scroll"><table><tr><th></th>{heads}</tr>\n'
    return head + "\n".join(rows) + "</table></div>"


def _row(name: str, estimates: list[Estimate | None], scale: tuple[float, float] | None) -> str:
    cells = "".join(
        f"<td>{_number(e)}{_bar(e, *scale) if scale else ''}</td>" if e else "<td>-</td>"
        for e in estimates
    )
    return f"<tr><td>{escape(name)}</td>{cells}</tr>"


def _gap_row(name: str, estimates: list[Estimate | None]) -> str:
    cells = "".join(
        f'<td class="{"sure" if is_sure(name, e) else ""}">{_number(e, "+")}</td>'
        if e
        else "<td>-</td>"
        for e in estimates
    )
    return f"<tr><td>{escape(name)}</td>{cells}</tr>"


def _number(e: Estimate, sign: str = "") -> str:
    form = f"{sign}.{3 if abs(e.value) < 10 else 1}f"
    if not e.is_bounded:
        return f"{e.value:{form}}"
    return f"{e.value:{form}} <small>[{e.low:{form}}, {e.high:{form}}]</small>"


def _scale(name: str, estimates: list[Estimate | None]) -> tuple[float, float] | None:
    """Return the ends of a bar's scale: 0 and 1 for shares, otherwise the range of rewards."""
    if name.startswith(PASS):
        return 0.0, 1.0
    if name != "reward":
        return None
    ends = [x for e in estimates if e for x in (e.low, e.high, e.value) if math.isfinite(x)]
    return min(0.0, *ends), max(0.0, *ends)


def _bar(e: Estimate, low: float, high: float) -> str:
    """Return the mean as a bar from zero, and its interval as a line."""

    def x(value: float) -> float:
        share = (min(max(value, low), high) - low) / ((high - low) or 1.0)
        return round(share * (WIDTH - 2) + 1, 1)

    begin, end = sorted((x(0.0), x(e.value)))
    middle = HEIGHT / 2
    return (
        f'<svg class="bar" width="{WIDTH}" height="{HEIGHT}" role="img">'
        f'<rect x="{begin}" y="2" width="{end - begin:.1f}" height="{HEIGHT - 4}"/>'
        f'<line x1="{x(e.low)}" x2="{x(e.high)}" y1="{middle}" y2="{middle}"/></svg>'
    )


def _data(c: Comparison) -> dict[str, Any]:
    """Return what the script shows: each text once, since most of a conversation is in many."""
    texts: dict[str, int] = {}
    attempts: list[dict[str, Any]] = []
    scenarios: dict[str, dict[str, Any]] = {}
    for n, column in enumerate(c.columns):
        for a in sorted(column.attempts, key=lambda a: a.trial):
            row = {"id": a.scenario, "tags": a.tags, "cells": [[] for _ in c.columns]}
            scenarios.setdefault(a.digest, row)["cells"][n].append(len(attempts))
            attempts.append(_attempt(a, c, texts))
    return {
        "candidates": [column.candidate.name for column in c.columns],
        "scenarios": list(scenarios.values()),
        "attempts": attempts,
        "texts": list(texts),
    }


def _attempt(a: Attempt, c: Comparison, texts: dict[str, int]) -> dict[str, Any]:
    """Return an attempt in the form of an episode on the page of a run."""

    def said(m: Message) -> dict[str, Any]:
        return {**m, "content": texts.setdefault(m["content"], len(texts))}

    costs = {"seconds": a.seconds, "dollars": a.usd}
    return {
        "passed": c.passed(a),
        "reward": a.reward,
        "metrics": a.metrics | {name: value for name, value in costs.items() if value},
        "stop_reason": a.stop_reason,
        "truncated": a.truncated,
        "num_sampled": a.num_tokens,
        "num_turns": a.num_turns,
        "messages": [said(m) for m in a.messages],
        "judge_context": a.judge_context,
    }
