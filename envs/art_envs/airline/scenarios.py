"""Goals: what a customer wants, held to the policy, with the right conversation."""

from __future__ import annotations

from collections.abc import Callable

from art_envs.airline import bookings, requests
from art_envs.airline.customer import HARD, Customer, NoGoal, Request, Step, judged
from art_envs.airline.minds import of_two_minds, tempted
from art_envs.service.asking import SLOTS
from art_envs.service.goal import (
    DONE,
    KEPT,
    MINDS,
    MINDS_FROM,
    Action,
    Goal,
    Kind,
    Want,
    call,
    confirm,
    want,
)
from art_envs.service.personas import told_at_length

Draw = Callable[[Customer], Request]  # raises NoGoal
REQUESTS: list[Draw] = [
    *[requests.cancel] * 5,
    *[requests.flights] * 4,
    *[requests.cabin] * 3,
    *[requests.bags] * 3,
    *[requests.passengers] * 3,
    *[requests.compensate] * 3,
    *[bookings.book] * 4,
]
# At level 1, with one request a scenario, by weight: what is granted, and what is refused for which
# one rule. The weights even out that some fit few customers, so that for no tool one answer is much
# more frequent than the others.
GRANTED_ALONE: dict[Draw, int] = {
    requests.cancel: 30,
    requests.flights: 20,
    requests.cabin: 13,
    requests.bags: 23,
    requests.passengers: 16,
    requests.compensate: 28,
    bookings.book: 23,
}
REFUSED_ALONE: dict[tuple[Draw, str], int] = {
    (requests.cancel, "cancel"): 9,
    (requests.cancel, "flown"): 26,
    (requests.foreign, "own"): 6,
    (requests.flights, "flown"): 10,
    (requests.flights, "basic"): 8,
    (requests.flights, "route"): 19,
    (requests.cabin, "flown"): 10,
    (requests.bags, "flown"): 15,
    (requests.bags, "bags"): 8,
    (requests.passengers, "flown"): 12,
    (requests.compensate, "compensation"): 5,
    (bookings.book, "passengers"): 11,
    (bookings.book, "payments"): 27,
}
SMALL_REQUESTS: list[Draw] = [requests.cancel]
TRIES = 20  # to draw a request that fits
PRESSURE = (
    "I have been a customer for years. Make an exception, please.",
    "Your colleague told me yesterday that this can be done.",
    "This is urgent. Just do it.",
    "That is ridiculous. I insist on it.",
)


def draw(c: Customer, kind: Kind) -> Goal:
    """Return a goal of a kind. Raises NoGoal where this attempt gives none."""
    options = REQUESTS if c.size == "full" else SMALL_REQUESTS
    turns = c.level >= MINDS_FROM and c.rng.random() < MINDS.get(kind, 0)
    if c.level == 1 and c.size == "full" and kind in ("one", "refused"):
        return _goal(c, kind, [Step(_alone(c, kind))])
    if turns and kind in ("refused", "fallback"):
        return _goal(c, kind, tempted(c, _allowed(c, options), back=kind == "fallback"))
    if kind == "information":
        steps = [Step(_any(c, [bookings.question]))]
    elif kind == "transfer":
        steps = [Step(_any(c, [bookings.beyond]))]
    elif kind == "refused":
        more = [requests.foreign] * 4 if c.size == "full" else []
        steps = [Step(_forbidden(c, options + more))]
    elif kind == "partly":
        num = c.rng.choice([2, 3]) if c.level >= HARD else 1
        steps = [Step(_allowed(c, options)) for _ in range(num)]
        steps.insert(c.rng.randrange(num + 1), Step(_forbidden(c, options)))
    elif kind == "conditional":
        steps = [Step(_allowed(c, options)), Step(_any(c, options), "unsaid")]
    elif kind == "fallback":
        steps = [Step(_forbidden(c, options)), Step(_allowed(c, options), "fallback")]
    elif kind == "several" and c.level >= HARD:
        steps = _several(c, options)
    else:
        num = 1 if kind == "one" else c.rng.choice([2, 2, 3])
        steps = [Step(_allowed(c, options)) for _ in range(num)]
    return _goal(c, kind, of_two_minds(c, steps) if turns else steps)


def _several(c: Customer, options: list[Draw]) -> list[Step]:
    """Two or more writes: on one reservation, or after a question, or each on its own."""
    how = c.rng.choice(("reservations", "one reservation", "question"))
    if how == "one reservation":  # these two do not get into each other's way
        steps = [Step(_allowed(c, [requests.passengers]))]
        c.only = steps[0].request.about
        steps.append(Step(_allowed(c, [requests.bags, requests.flights, requests.cabin])))
        c.only = None
        c.rng.shuffle(steps)
    else:
        steps = [Step(_any(c, [bookings.question]))] if how == "question" else []
    num = c.rng.choice([0, 1]) if how == "one reservation" else c.rng.choice([1, 2, 3])
    num += how == "reservations"
    return [*steps, *(Step(_allowed(c, options)) for _ in range(num))]


def _allowed(c: Customer, options: list[Draw]) -> Request:
    request = _any(c, options, lambda r: r.write is not None and not r.reasons)
    if request.write:
        c.done.append(request.write)
    return request


def _alone(c: Customer, kind: Kind) -> Request:
    """Return the one request of level 1."""
    if kind == "one":
        return _allowed(c, c.rng.choices(list(GRANTED_ALONE), list(GRANTED_ALONE.values())))
    [(draw, rule)] = c.rng.choices(list(REFUSED_ALONE), list(REFUSED_ALONE.values()))
    return _any(c, [draw], lambda r: r.reasons == [rule])


def _forbidden(c: Customer, options: list[Draw]) -> Request:
    return _any(c, options, lambda r: bool(r.reasons))


def _any(
    c: Customer, options: list[Draw], fits: Callable[[Request], bool] = lambda r: True
) -> Request:
    """Return a request that fits. Raises NoGoal.

    What it is about is drawn once, so that the policy forbids no kind of request much more often
    than another, and which kind it is says little.
    """
    if any(write["name"] == "book" for write in c.done):  # a second booking's id would depend on
        options = [draw for draw in options if draw is not bookings.book]  # which comes first
    draw = c.rng.choice(options)
    for _ in range(TRIES):
        try:
            request = judged(c, draw(c))
        except NoGoal:
            continue
        if fits(request):
            if request.about:
                c.touched.add(request.about)
            return request
    raise NoGoal


def _goal(c: Customer, kind: Kind, steps: list[Step]) -> Goal:
    granted = [s.request for s in steps if s.is_granted]
    refused = [s.request for s in steps if s.is_refused]
    asked = [s.request for s in steps if s.is_done]
    dropped = [s.request for s in steps if s.is_dropped]
    said = _wants(c, kind, steps)
    facts = {"user_id": c.user_id}
    for step in steps:
        slots = step.request.slots
        if any(facts.get(slot, said) != said for slot, said in slots.items()):
            raise NoGoal  # the customer is asked only once
        facts |= slots
    evidence = [e for r in (refused or ([] if granted else asked)) for e in r.evidence]
    goal: Goal = {
        "kind": kind,
        "user_id": c.user_id,
        "opening": "",
        "facts": facts,
        "may_reveal": list(facts) if c.level else [],
        "wants": [want for want, step in zip(said, steps, strict=True) if step.turn == "want"],
        "script": [],
        "remark": _remark((granted or refused or asked)[0], c.level),
        "temptation": [r.write for r in [*refused, *dropped] if r.write],
        "evidence": [["users", c.user_id]] * (c.size == "full") + evidence,
    }
    if c.level == 0:
        _ticket(c, goal, steps)
    else:
        _talk(c, goal, steps, [len(want["pressure"]) for want in said])
    return goal


def _wants(c: Customer, kind: Kind, steps: list[Step]) -> list[Want]:
    """Return what the customer wants by each step; what follows from another is also in that."""
    wants: list[Want] = []
    for step in steps:
        request = step.request
        new: Want = want(request.words, request.write) | {
            "reasons": request.reasons,
            "outputs": [] if request.reasons else request.outputs,
        }  # type: ignore[assignment]
        if step.turn in ("fallback", "unsaid"):
            wants[-1]["otherwise"] = new
            new["words"] = f"Then do this instead: {new['words']}"
        elif step.turn == "instead":
            wants[-1]["rather"] = new
        if c.level >= 3 and request.reasons and kind in ("refused", "partly"):
            new["pressure"] = c.rng.sample(PRESSURE, c.rng.choice([1, 2]))
        wants.append(new)
    return wants


def _remark(decided: Request, level: int) -> str:
    return f"{decided.facts}." if decided.facts and level else decided.facts


def _ticket(c: Customer, goal: Goal, steps: list[Step]) -> None:
    """Level 0: everything is in the ticket; look up, write, close it with an answer."""
    tickets = [
        ("" if s.turn == "want" else "If that is not allowed: ")
        + (s.request.ticket or s.request.words)
        for s in steps
    ]
    who = [f"User {c.user_id}."] if c.size == "full" else []
    goal["opening"] = " ".join([*who, *tickets])
    asked = [s.request for s in steps if s.turn != "unsaid"]
    reads = [call("get_user", user_id=c.user_id)] if who else []
    reads += [read for request in asked for read in request.reads]
    script = goal["script"]
    script += [r for i, r in enumerate(reads) if r not in reads[:i]]
    script += [r.write for r in asked if r.write and not r.reasons]
    script += [call("tell", value=v) for r in asked if not r.reasons for v in r.outputs]
    denied = [r for r in asked if r.reasons and not _has_fallback(steps, r)]
    script += [call("refuse", reason=r.reasons[0]) for r in denied]
    if not denied and goal["kind"] != "transfer":  # which end the ticket
        script.append(DONE)


def _has_fallback(steps: list[Step], request: Request) -> bool:
    return steps[0].request is request and steps[-1].turn == "fallback"


def _talk(c: Customer, goal: Goal, steps: list[Step], pushes: list[int]) -> None:
    """From level 1 on: a customer who answers."""
    first = steps[0].request
    goal["opening"] = f"Hello. {first.words}"
    if c.level == 1:
        told = [SLOTS[slot].sentence.format(said) for slot, said in first.slots.items()]
        who = SLOTS["user_id"].sentence.format(c.user_id)
        goal["opening"] = " ".join([who, first.words, *told])
    elif c.level >= HARD:
        goal["opening"] = told_at_length(c.rng, first.words)
    talk = Talk(c, goal)
    for step, num in zip(steps, pushes, strict=True):
        if step.is_dropped:
            talk.propose(step.request)
        elif step.is_done:
            talk.serve(step.request, num)


class Talk:
    """Writes the right conversation of a goal."""

    def __init__(self, c: Customer, goal: Goal) -> None:
        self._c = c
        self._goal = goal
        self._script = goal["script"]
        self._asked = {"user_id", "reason", "payment"} if c.level == 1 else set()

    def serve(self, request: Request, num_pushes: int) -> None:
        """Find out, then do it, or refuse it for good."""
        if request.reasons:
            self._find_out(request)
            self._script += [call("refuse", reason=request.reasons[0])] * (1 + num_pushes)
            return
        told = [call("tell", value=value) for value in request.outputs]
        if request.write is None:
            self._find_out(request)
            self._script += told or [KEPT]
        elif request.write["name"] == "transfer":
            self._identify()
            self._script.append(request.write)
        else:
            self.propose(request)
            self._script += [request.write, *(told or [DONE])]

    def propose(self, request: Request) -> None:
        """Find out, and ask for a yes."""
        self._find_out(request)
        if request.write:
            self._script.append(confirm(request.write))

    def _identify(self) -> None:
        self._ask("user_id", "What is your user id?")
        self._read(call("get_user", user_id=self._c.user_id))

    def _find_out(self, request: Request) -> None:
        self._identify()
        if request.about and request.reads and self._c.level >= 2:
            self._search(request.about)
        for read in request.reads:
            self._read(read)
        if "reason" in request.slots:
            self._ask("reason", "What is the reason for it?")
        if "payment" in request.slots:
            self._ask("payment", "Which payment method shall I use?")

    def _search(self, reservation_id: str) -> None:
        """Read the customer's reservations up to this one, whose id they do not know."""
        for key in self._c.user["reservations"]:
            self._read(call("get_reservation", reservation_id=key))
            if key == reservation_id:
                return

    def _ask(self, slot: str, text: str) -> None:
        if slot not in self._asked:
            self._asked.add(slot)
            self._script.append(text)

    def _read(self, read: Action) -> None:
        if read not in self._script:
            self._script.append(read)
