"""Minds that customers change: what they want instead, once they are asked to confirm a request.

The first request could be granted. The second is about the same reservation, where there is one:
other flights, another cabin, other bags or passengers, another payment method, a cancellation, or
nothing at all. The rules decide what becomes of it, as of every request.
"""

from __future__ import annotations

from dataclasses import replace

from art_cli import ToolError
from art_envs.airline import bookings, requests
from art_envs.airline.customer import WRITES, Customer, NoGoal, Request, Step, judged
from art_envs.service.goal import Action, call
from art_envs.service.personas import BACK, KEEP, reconsidered
from art_envs.service.store import Store

TRIES = 60  # to draw a second request that fits
DRAWS = (
    requests.flights,
    requests.flights,
    requests.cabin,
    requests.bags,
    requests.passengers,
    requests.cancel,
)


def tempted(c: Customer, first: Request, *, back: bool) -> list[Step]:
    """Return a request, one that is forbidden in its place, and with `back` the first one again.

    Raises NoGoal.
    """
    first, then = _turned(c, first, forbidden=True)
    steps = [Step(first, is_dropped=True), Step(then, "instead")]
    return [*steps, Step(first, "fallback")] if back else steps


def of_two_minds(c: Customer, steps: list[Step]) -> list[Step]:
    """Return steps of which the customer thinks better of one. Raises NoGoal.

    Only one that is not the last comes to nothing, and only beside another change: the customer
    goes on to the next once they have said so, and who never asks for their yes does not get there.
    """
    about = [step.request.about for step in steps]
    able = [
        i
        for i, step in enumerate(steps)
        # Who asks how much they get back would be told what they then no longer ask for.
        if step.is_granted
        and not step.request.outputs
        and (about[i] is None or about.count(about[i]) == 1)
    ]
    if not able:
        raise NoGoal
    at, how = c.rng.choice(able), c.rng.random()
    first, after = steps[at].request, steps[at + 1 :]
    more = sum(step.is_granted for step in steps) > 1
    if how < 0.4 and more and any(step.turn == "want" for step in after):
        then = [Step(Request(words=KEEP, reads=[], write=None), "instead")]
    else:
        first, second = _turned(c, first, forbidden=False)
        then = [Step(second, "instead", is_dropped=how > 0.85)]
        if how > 0.85:
            then.append(Step(replace(first, words=f"{BACK} {first.words}"), "instead"))
    found = [*steps[:at], Step(first, steps[at].turn, is_dropped=True), *then, *after]
    _after(c, [step.request.write for step in found if step.is_granted and step.request.write])
    return found


def _turned(c: Customer, first: Request, *, forbidden: bool) -> tuple[Request, Request]:
    """Return a request, and what the customer wants in its place. Raises NoGoal."""
    write = first.write
    if not write or first.outputs:
        raise NoGoal
    others = [made for made in c.done if made != write]
    _after(c, others)  # they may have been possible only after it
    c.done, c.only = others, first.about if c.size == "full" else None
    draws = DRAWS if c.size == "full" else (requests.cancel,)
    if write["name"] == "book":
        draws = (*draws, *[bookings.book] * len(draws))
    for _ in range(TRIES):
        try:
            if "payment_id" in write["arguments"] and c.rng.random() < 0.25:
                said, then = _paid_otherwise(c, first)
            else:
                said, then = first, judged(c, c.rng.choice(draws)(c))
            if bool(then.reasons) != forbidden or then.outputs or not then.write:
                continue
            if not forbidden and _after(c, [*others, then.write]).is_same(
                _after(c, [*others, write])
            ):
                continue
        except NoGoal:
            continue
        c.only = None
        is_alike = then.write["name"] == write["name"]
        words = reconsidered(c.rng, then.words, is_alike=is_alike)
        return said, replace(then, words=words)
    raise NoGoal


def _paid_otherwise(c: Customer, first: Request) -> tuple[Request, Request]:
    """Return a request that says how to pay, and the same with another method. Raises NoGoal."""
    assert first.write
    paid = first.write["arguments"]["payment_id"]
    others = [id for id in c.user["payments"] if id != paid]
    if not others:
        raise NoGoal
    id = c.rng.choice(others)
    said = replace(first, words=f"{first.words} Use {c.method(paid)} for it.", slots={})
    new = replace(
        said,
        words=f"Use {c.method(id)} for it, the rest as I said.",
        write=call(first.write["name"], **first.write["arguments"] | {"payment_id": id}),
    )
    return said, judged(c, new)


def _after(c: Customer, writes: list[Action]) -> Store:
    """Return the records after these writes. Raises NoGoal where they cannot all be made."""
    db = Store(c.base)
    try:
        for write in writes:
            WRITES[write["name"]](db, **write["arguments"])
    except ToolError:
        raise NoGoal from None
    return db
