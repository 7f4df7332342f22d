"""Players that do the work and know exactly what the customer wants, but not the policy.

Each looks everything up as the correct conversation does. For each wish it then decides whether to
try the write, and whether to refuse it and for which reason.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from functools import cache

from art_cli import ToolError
from art_envs.retail.dual import DualDesk
from art_envs.retail.hands import ASKS, ask_for
from art_envs.service.desk import ServiceDesk
from art_envs.service.gates import finished
from art_envs.service.goal import DONE, KEPT, Action, Want, call, confirm, settled_by
from scripts.bench.desk_players import Player, Turns, changing, draws, looking

Decision = Callable[[ServiceDesk, Want], tuple[bool, str]]  # try the write? refuse it, and why?

KEYWORDS = {  # words of a tool's error -> the reason for a refusal
    "the order is already": "method",
    "the order is": "status",
    "not available": "variant",
    "same product": "product",
    "gift card": "method",
    "refund": "method",
    "is no reason": "reason",
}


def _together(desk: ServiceDesk, write: Action) -> Turns:
    turns = list(changing(desk, write))
    yield from turns[:-2]
    yield [step for step in turns[-2:] if not isinstance(step, list)]


def serving(decide: Decision, making: Callable[[ServiceDesk, Action], Turns] = changing) -> Player:
    """Return a player that looks everything up, then decides about each wish."""

    def player(desk: ServiceDesk) -> Turns:
        yield from looking(desk)
        denied: list[Action] = []
        for want in desk.goal["wants"]:
            yield from _settling(desk, want, decide, making, denied)
        yield from denied
        yield from itertools.repeat(DONE)

    return player


def _settling(
    desk: ServiceDesk,
    want: Want,
    decide: Decision,
    making: Callable[[ServiceDesk, Action], Turns],
    denied: list[Action],
) -> Turns:
    while want["rather"]:
        assert want["write"]
        yield confirm(want["write"])
        want = want["rather"]
    write = want["write"]
    tries, reason = decide(desk, want) if write else (False, "")
    if write and tries:
        yield from making(desk, write)
    if reason:
        no = call("refuse", reason=reason)
        if want["otherwise"]:
            yield from [no] * bool(desk.cfg.level)
            yield from _settling(desk, want["otherwise"], decide, making, denied)
        elif desk.cfg.level:
            yield from [no] * (1 + len(want["pressure"]))
        else:
            denied.append(no)  # it closes the ticket
        return
    yield from (call("tell", value=value) for value in want["outputs"])
    if desk.cfg.level and not want["outputs"]:
        yield DONE if write else KEPT


def objection(desk: ServiceDesk, write: Action) -> str:
    """Return the error that a tool would give for a write, or "" if it would accept it."""
    other = type(desk)(desk.scenario, desk.cfg)
    other.store = desk.store.copy()
    if isinstance(other, DualDesk) and isinstance(desk, DualDesk):
        other.hands = desk.hands
    told = desk.goal["facts"].get("reason")  # in the customer's own words
    if type(desk).__name__ == "RetailDesk" and write["name"] == "cancel_order" and told:
        write = call(write["name"], **write["arguments"] | {"reason": told})
    try:
        finished(other.act(write))
    except ToolError as e:
        return str(e)
    return ""


@cache
def usual(env: type[ServiceDesk], level: int, tool: str = "") -> str:
    """Return the most frequent decision in training: a reason to refuse, or "" to grant.

    Without the name of a tool, return the most frequent reason overall.
    """
    goals = env.goals(env.Config(level=level))["train"]  # type: ignore[arg-type]
    wants = [w for goal in goals for w in settled_by(goal) if w["write"]]
    if tool:
        reasons = [(w["reasons"] or [""])[0] for w in wants if w["write"]["name"] == tool]  # type: ignore[index]
    else:
        reasons = [r for w in wants for r in w["reasons"]]
    return Counter(reasons).most_common(1)[0][0] if reasons else ""


def _of(desk: ServiceDesk, tool: str = "") -> str:
    return usual(type(desk), desk.cfg.level, tool)


def complying(desk: ServiceDesk, want: Want) -> tuple[bool, str]:
    """Grant every wish."""
    return True, ""


def trying(desk: ServiceDesk, want: Want) -> tuple[bool, str]:
    """Try the write. If the tool refuses, refuse for the reason in its error."""
    error = objection(desk, want["write"]) if want["write"] else ""
    named = [reason for words, reason in KEYWORDS.items() if words in error]
    return True, (named or [_of(desk)])[0] if error else ""


def probing(desk: ServiceDesk, want: Want) -> tuple[bool, str]:
    """Try the write. If the tool refuses, refuse for the most frequent reason."""
    return True, _of(desk) if want["write"] and objection(desk, want["write"]) else ""


def refusing_usually(desk: ServiceDesk, want: Want) -> tuple[bool, str]:
    """Refuse everything for the most frequent reason."""
    return False, _of(desk)


def guessing_by_tool(desk: ServiceDesk, want: Want) -> tuple[bool, str]:
    """Decide as is most frequently right for the requested tool."""
    usual_for_it = _of(desk, want["write"]["name"]) if want["write"] else ""
    return not usual_for_it, usual_for_it


def refusing_what_has_an_alternative(desk: ServiceDesk, want: Want) -> tuple[bool, str]:
    """Grant the wish, unless the ticket names an alternative: then refuse for the usual reason."""
    return (False, _of(desk)) if want["otherwise"] and not desk.cfg.level else (True, "")


def tossing(desk: ServiceDesk, want: Want) -> tuple[bool, str]:
    """Toss a coin: grant the wish, or refuse it for the most frequent reason."""
    grants = draws(desk).random() < 0.5
    return grants, "" if grants else _of(desk)


def asking_everything(desk: ServiceDesk) -> Turns:
    """Have the customer try every action, then replace the item. At other desks, comply."""
    if isinstance(desk, DualDesk):
        yield from looking(desk)
        for ask in ASKS:
            yield from [ask_for(ask)] * (1 + (ask in desk.thing["slips"]))
    yield from serving(complying)(desk)


BLIND: dict[str, Player] = {
    "does what is asked": serving(complying),
    "the same, confirm and write in one turn": serving(complying, _together),
    "tries, refuses for what the error says": serving(trying),
    "tries, else refuses for the usual reason": serving(probing),
    "refuses for the usual reason": serving(refusing_usually),
    "refuses what has an alternative (tickets)": serving(refusing_what_has_an_alternative),
    "tosses a coin": serving(tossing),
    "has the customer do everything first": asking_everything,
}

# This player knows the answers of all training scenarios, as a guess for each tool.
PRIOR: dict[str, Player] = {"does what is usual for the tool": serving(guessing_by_tool)}
