"""Assistants that play the desks by a rule, for `desks.py` and tests/envs.

Each is a function from an episode to its turns. It may read the episode's goal: a player without
the policy still knows exactly what the customer wants, so what it earns is the most that such a
player could earn.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

from art_cli.envs.tools import tools_of
from art_cli.rollout.rollout import play_episode
from art_envs.retail.dual import DualDesk
from art_envs.retail.hands import ACCEPT, LABEL, LOOK, ask_for
from art_envs.service.desk import ServiceDesk
from art_envs.service.episode import text_of
from art_envs.service.goal import COMMITMENTS, DONE, KEPT, Action, call, confirm, minds

Turn = str | Action | list[str | Action]  # a list: text and calls in one turn
Turns = Iterator[Turn]
Player = Callable[[ServiceDesk], Turns]

MOMENT = "One moment, please, let me check."
WORDS = {"reason": "Reason?", "payment": "Payment?", "user id": "User id?", "email": "Email?"}


def reward(desk: ServiceDesk, turns: Turns) -> float:
    """Return the reward of an assistant that takes these turns."""
    earned = play_episode(desk, map(_text, turns).__next__).reward
    assert earned is not None
    return earned


def _text(turn: Turn) -> str:
    if isinstance(turn, list):
        return " ".join(map(_text, turn))
    return turn if isinstance(turn, str) else f"<tool_call>{json.dumps(turn)}</tool_call>"


def steps(desk: ServiceDesk) -> list[str | Action]:
    """Return the steps of the correct conversation."""
    return list(desk.goal["script"])


def name_of(step: str | Action) -> str:
    """Return the name of the called tool, or "" for text."""
    return "" if isinstance(step, str) else step["name"]


def is_reading(desk: ServiceDesk, step: str | Action) -> bool:
    """Return whether a step is text, or a call without a commitment."""
    name = name_of(step)
    return not name or not (tools_of(type(desk))[name].writes or name in COMMITMENTS)


def looking(desk: ServiceDesk) -> Turns:
    """Ask and look up everything that the correct conversation does."""
    yield from (s for s in steps(desk) if is_reading(desk, s) and s not in (DONE, KEPT))


def draws(desk: ServiceDesk) -> random.Random:
    """Return a random generator that is seeded by the scenario."""
    return random.Random(desk.scenario.seed)


# Legitimate variations of the correct conversation. All earn 1.


def plain(desk: ServiceDesk) -> Turns:
    """Play the correct conversation unchanged."""
    yield from steps(desk)
    yield from itertools.repeat(DONE)


def terse(desk: ServiceDesk) -> Turns:
    """Ask in one word."""
    for step in steps(desk):
        asked = [w for topic, w in WORDS.items() if isinstance(step, str) and topic in step]
        yield asked[0] if asked else "ok" if isinstance(step, str) else step
    yield from itertools.repeat("ok")


def announcing(desk: ServiceDesk) -> Turns:
    """Write "one moment" before each call."""
    for step in steps(desk):
        yield from [MOMENT, step] if name_of(step) else [step]
    yield from itertools.repeat(DONE)


def narrating(desk: ServiceDesk) -> Turns:
    """Explain each call in its turn."""
    for step in steps(desk):
        yield [f"I will now use {name_of(step)} for you.", step] if name_of(step) else step
    yield from itertools.repeat(DONE)


def asking_in_words_first(desk: ServiceDesk) -> Turns:
    """Ask for consent in text before each confirm."""
    for step in steps(desk):
        if name_of(step) == "confirm":
            yield "I would now make the change that you asked for. Shall I go ahead?"
        yield step
    yield from itertools.repeat(DONE)


def asking_for_more_first(desk: ServiceDesk) -> Turns:
    """Ask before each confirm whether there is anything else."""
    for step in steps(desk):
        if name_of(step) == "confirm":
            yield "Is there anything else before I do this?"
        yield step
    yield from itertools.repeat(DONE)


def explaining(desk: ServiceDesk) -> Turns:
    """Give the reason in text before each refusal."""
    for step in steps(desk):
        if name_of(step) == "refuse":
            yield "I am sorry, but our policy does not allow this."
        yield step
    yield from itertools.repeat(DONE)


def reordering(desk: ServiceDesk) -> Turns:
    """Give ids in a different order in the write than in the confirm."""
    for step in steps(desk):
        if isinstance(step, str) or step["name"] == "confirm":
            yield step
            continue
        lists = ("item_ids", "new_item_ids", "passengers", "payments")
        turned = {k: v[::-1] if k in lists else v for k, v in step["arguments"].items()}
        yield call(step["name"], **turned)
    yield from itertools.repeat(DONE)


def telling_otherwise(how: str) -> Player:
    """Return a player that formats the values it tells differently."""

    def player(desk: ServiceDesk) -> Turns:
        for step in steps(desk):
            if not isinstance(step, str) and step["name"] == "tell":
                yield call("tell", value=how.format(step["arguments"]["value"]))
            else:
                yield step
        yield from itertools.repeat(DONE)

    return player


def shouting(desk: ServiceDesk) -> Turns:
    """Write text in capitals, and swap the case of name and email."""
    for step in steps(desk):
        if isinstance(step, str):
            yield step.upper()
        else:
            who = ("email", "first", "last")
            turned = {
                k: v.swapcase() if k in who and step["name"].startswith("find") else v
                for k, v in step["arguments"].items()
            }
            yield call(step["name"], **turned)
    yield from itertools.repeat("DONE!")


def whispering(desk: ServiceDesk) -> Turns:
    """Write text in lower case, without a full stop or question mark."""
    yield from (s.lower().strip(".?") if isinstance(s, str) else s for s in steps(desk))
    yield from itertools.repeat("done")


def side_by_side(desk: ServiceDesk) -> Turns:
    """Make consecutive look-ups in one turn."""
    together: list[str | Action] = []
    for step in steps(desk):
        if name_of(step) and is_reading(desk, step):
            together.append(step)
            continue
        yield from [together] * bool(together)
        together = []
        yield step
    yield from itertools.repeat(DONE)


def checking_twice(desk: ServiceDesk) -> Turns:
    """Look everything up twice."""
    for step in steps(desk):
        yield from [step, step] if name_of(step) and is_reading(desk, step) else [step]
    yield from itertools.repeat(DONE)


HONEST: dict[str, Player] = {
    "the right conversation": plain,
    "asks in one word": terse,
    '"one moment" before each call': announcing,
    "says in each call's turn what it does": narrating,
    "asks for a yes in words, then confirms": asking_in_words_first,
    "asks for anything else, then confirms": asking_for_more_first,
    "says why not, then refuses": explaining,
    "ids in another order than confirmed": reordering,
    "`USD 12.50`": telling_otherwise("USD {}"),
    "`**$12.50**`": telling_otherwise("**${}**"),
    "all in capitals": shouting,
    "all in lower case": whispering,
    "several look-ups in one turn": side_by_side,
    "looks everything up twice": checking_twice,
}
# A text closes a ticket.
WORDY = (announcing, asking_in_words_first, asking_for_more_first, explaining)


def changing(desk: ServiceDesk, write: Action) -> Turns:
    """Ask for the information that a write needs, get consent, and make the write."""
    if isinstance(desk, DualDesk) and write["name"] == "replace_item":
        yield ask_for(LOOK)
        yield from [ask_for(LABEL)] * (1 + (LABEL in desk.thing["slips"]))
        yield from [ask_for(ACCEPT)] * (1 + (ACCEPT in desk.thing["slips"]))
    if desk.cfg.level and write["name"] != "transfer":
        yield confirm(write)
    yield write


# Players that do no work. All earn next to nothing.


def repeating(*turns: Turn) -> Player:
    """Return a player that repeats the same turns."""
    return lambda desk: itertools.cycle(turns)


def transferring(desk: ServiceDesk) -> Turns:
    """Identify the customer and transfer."""
    yield from looking(desk)
    yield call("transfer", summary="The customer needs help.")


def refusing_unseen(desk: ServiceDesk) -> Turns:
    """Identify the customer, and refuse for one random reason."""
    found = next(s for s in steps(desk) if name_of(s).startswith(("find_user", "get_")))
    yield found
    yield from itertools.repeat(call("refuse", reason=draws(desk).choice(list(desk.reasons))))


def refusing_for_all(desk: ServiceDesk) -> Turns:
    """Look everything up, and refuse for every reason in one turn."""
    yield from looking(desk)
    every: Turn = [call("refuse", reason=reason) for reason in desk.reasons]
    yield from itertools.repeat(every)


def confirming_alone(desk: ServiceDesk) -> Turns:
    """Look everything up and confirm correctly, but change nothing."""
    yield from (s for s in steps(desk) if is_reading(desk, s) or name_of(s) == "confirm")
    yield from itertools.repeat(DONE)


def telling_at_random(desk: ServiceDesk) -> Turns:
    """Look everything up, and tell a random value."""
    yield from looking(desk)
    value = draws(desk).choice(
        [f"{draws(desk).uniform(5, 500):.2f}", str(draws(desk).randrange(12))]
    )
    yield call("tell", value=value)
    yield from itertools.repeat(DONE)


def writing_at_random(desk: ServiceDesk) -> Turns:
    """Look everything up, and make one of the writes that the tools would accept."""
    yield from looking(desk)
    writes = list(desk.legal_writes())
    if writes:
        yield from changing(desk, draws(desk).choice(writes))
    yield from itertools.repeat(DONE)


def promising(desk: ServiceDesk) -> Turns:
    """Look everything up, and claim that it is done."""
    yield from looking(desk)
    yield from itertools.repeat("I have made an exception for you. It is done.")


IDLE: dict[str, Player] = {
    "says that it is done": repeating(DONE),
    "says nothing": repeating(""),
    "looks, then says that it is done": promising,
    "transfers": transferring,
    "refuses unseen, at random": refusing_unseen,
    "looks, then refuses for every reason": refusing_for_all,
    "confirms, changes nothing": confirming_alone,
    "looks, then tells at random": telling_at_random,
    "looks, then one random write": writing_at_random,
}


# Players that know the policy but insist on the customer's first wish. They earn nothing if the
# customer changes their mind, and everything otherwise.


def insisting(*, times: int) -> Player:
    """Return a player that asks for a yes `times` times, then makes the first change."""

    def player(desk: ServiceDesk) -> Turns:
        dropped = {text_of(confirm(w["write"])): w["write"] for w in minds(desk.goal) if w["write"]}
        for step in steps(desk):
            yield step
            if not isinstance(step, str) and text_of(step) in dropped:
                yield from [step] * (times - 1)
                yield dropped[text_of(step)]
        yield from itertools.repeat(DONE)

    return player


DEAF: dict[str, Player] = {
    "does what was wanted first": insisting(times=1),
    "asks twice for a yes to it, then does it": insisting(times=2),
}


def episodes(env: type[ServiceDesk], cfg: Any, num: int) -> Iterator[ServiceDesk]:
    """Yield episodes of held-out customers."""
    yield from (
        env(scenario, cfg) for scenario in itertools.islice(env.scenarios(cfg, "test"), num)
    )
