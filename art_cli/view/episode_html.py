"""Episodes as HTML without scripts, for the display of trajectories in a notebook.

The page of a run shows the same with the same style (`view/assets/talk.js`). All content of an
episode is escaped, and invisible characters are made visible.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from art_cli.terminal.text import masked, visible

if TYPE_CHECKING:
    from art_cli.types import Message, Split, Trajectory

LONGEST = 20_000  # characters of a text; a notebook stores its whole output
SHORT = 160  # characters of a tool's result that is not folded
MOST_EPISODES = 12  # episodes of an evaluation
ROLES = ("system", "user", "assistant", "tool")
THOUGHT = re.compile(r"(.*?)<think>(.*?)(?:</think>|$)(.*)", re.DOTALL)
CALL = re.compile(r"<tool_call>|\[TOOL_CALLS\]|<\|tool")


@cache
def style() -> str:
    """Return the CSS of episodes, for elements inside one with the class `art`."""
    return (Path(__file__).parent / "assets" / "conversation.css").read_text(encoding="utf-8")


def of_trajectory(t: Trajectory) -> str:
    """Return an episode: its numbers and its messages."""
    return _alone(_episode(t, f"{t.scenario.id}"))


def of_group(trajectories: Sequence[Trajectory]) -> str:
    """Return siblings side by side, the best first, with their common beginning shown once."""
    if not trajectories:
        return _alone('<p class="dim">a group without trajectories</p>')
    named = [(t, f"#{n}") for n, t in enumerate(trajectories)]
    named.sort(key=lambda x: float("-inf") if x[0].reward is None else x[0].reward, reverse=True)
    shared = same_opening([t.messages for t in trajectories]) if len(named) > 1 else 0
    head = f"<p><b>{_text(trajectories[0].scenario.id)}</b></p>"
    if shared:
        what = f"What all {len(named)} begin with: {shared} message{'s' * (shared > 1)}"
        head += _fold(what, "".join(map(_message, trajectories[0].messages[:shared])))
    return _alone(head + _side_by_side(_episode(t, label, shared) for t, label in named))


def of_evaluation(
    split: Split, step: int, numbers: dict[str, str], trajectories: Sequence[Trajectory]
) -> str:
    """Return the numbers of an evaluation, and its worst episodes, collapsed."""
    rows = "".join(f"<tr><td>{_text(k)}</td><td>{_text(v)}</td></tr>" for k, v in numbers.items())
    worst = sorted(trajectories, key=lambda t: float("inf") if t.reward is None else t.reward)
    shown = worst[:MOST_EPISODES]
    what = f"{len(shown)} of {len(worst)} episodes, the worst first" if shown else "no episodes"
    episodes = (
        _fold(f"{_number(t.reward)}  {t.scenario.id}", _episode(t, t.scenario.id)) for t in shown
    )
    return _alone(
        f'<p><b>{_text(split)}, step {step}</b></p><table class="num">{rows}</table>'
        f'<p class="dim small">{what}</p>{"".join(episodes)}'
    )


def _alone(body: str) -> str:
    return f'<div class="art alone"><style>{style()}</style>{body}</div>'


def _side_by_side(episodes: Iterable[str]) -> str:
    return f'<div class="siblings">{"".join(episodes)}</div>'


def _episode(t: Trajectory, label: str, skipped: int = 0) -> str:
    facts = [f"<b>reward {_number(t.reward)}</b>"]
    if t.advantage is not None:
        tone = "good" if t.advantage > 0 else "bad" if t.advantage < 0 else ""
        facts.append(f'<b class="{tone}">advantage {t.advantage:+.3g}</b>')
    facts.append(f"<span>ended by {_text(t.stop_reason)}</span>")
    if t.truncated:
        facts.append('<span class="bad">truncated</span>')
    facts.append(f"<span>{t.num_sampled} tokens, {t.num_turns} turns</span>")
    facts += [f'<span class="dim">{_text(k)} {v:.3g}</span>' for k, v in t.all_metrics.items()]
    parts = [f"<h3>{_text(label)}</h3>", f'<div class="facts num">{"".join(facts)}</div>']
    parts += [
        f'<div class="words"><span class="role">{role}</span> {_text(x)}</div>'
        for role, x in (("judge", t.reward_parts.explanation), *(("log", x) for x in t.logs))
        if x
    ]
    for failure in filter(None, (t.crash, t.error)):
        whole = f"{failure}\n{t.traceback}" if failure is t.error else failure
        parts.append(f'<div class="words bad">{_fold(_brief(failure), _pre(whole))}</div>')
    parts += map(_message, t.messages[skipped:])
    for n, talk in enumerate(t.side_conversations, 1):
        parts.append(_fold(f"side conversation or fork {n}", "".join(map(_message, talk))))
    if t.judge_context:
        parts.append(_fold("what the env knows", _pre(t.judge_context)))
    return f'<article class="sibling">{"".join(parts)}</article>'


def _message(m: Message) -> str:
    role = m["role"] if m["role"] in ROLES else "other"
    is_error = bool(m.get("is_error"))
    name = f"{m['role']} {m.get('name', '')}{' (error)' if is_error else ''}"
    if role == "tool":
        content = m["content"] or "(empty)"
        body = _pre(content) if len(content) < SHORT else _fold(_brief(content), _pre(content))
    else:
        body = _said(m["content"], m.get("tool_calls") or [])
    classes = f"turn {role}{' error' if is_error else ''}"
    return f'<div class="{classes}"><div class="role">{_text(name)}</div>{body}</div>'


def _said(content: str, calls: Sequence[Any]) -> str:
    """Return a message's text and calls, with thinking and raw calls collapsed."""
    found, out = THOUGHT.fullmatch(content), ""
    if found:
        out = _fold(f"thinking, {len(found[2].strip())} characters", _pre(found[2].strip()))
        content = (found[1] + found[3]).strip()
    if not calls:
        return out + _pre(content)
    before = CALL.split(content)[0].strip()
    if before and not before.startswith("{"):
        out += _pre(before)
    for call in calls:
        out += _fold(_call_line(call), _pre(json.dumps(call["arguments"], indent=2)))
    return out + _fold("as sampled", _pre(content))


def _call_line(call: Any) -> str:
    given = call["arguments"].items() if isinstance(call["arguments"], dict) else ()
    words = (f"{k}={_brief(v if isinstance(v, str) else json.dumps(v), 40)}" for k, v in given)
    return f"{call['name']}({', '.join(words)})"


def same_opening(talks: Sequence[Sequence[Any]]) -> int:
    """Return the number of messages that all conversations have in common at the start."""
    num = 0
    for messages in zip(*talks, strict=False):
        if any(m != messages[0] for m in messages):
            break
        num += 1
    return num


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.3g}"


def _brief(text: str, most: int = 90) -> str:
    line = " ".join(text.split())
    return f"{line[:most]} ..." if len(line) > most else line or "(empty)"


def _fold(summary: str, content: str) -> str:
    head = f"<summary><code>{_text(summary)}</code></summary>"
    return f"<details>{head}{content}</details>"


def _pre(text: str) -> str:
    more = len(text) - LONGEST
    cut = f"{text[:LONGEST]}\n({more} more characters)" if more > 0 else text
    return f"<pre>{_text(cut)}</pre>"


def _text(text: str) -> str:
    return escape(visible(masked(text)))
