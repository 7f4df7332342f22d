"""A thing that does not work: the shop's rules about it, and the thing in its customer's hands.

Only the customer can look at it, charge it, photograph it. What they are asked for changes their
world, not the shop's, and they say honestly what they see. The rules are here once: `Hands.due`,
for the env and the generator, and the document that the assistant reads.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Literal, TypedDict, get_args

from art_envs.retail.policy import BRIEF, DELIVERED, DOCUMENT
from art_envs.service.episode import Size
from art_envs.service.goal import Action, call
from art_envs.service.user import Report

Light = Literal["dark", "blinking", "red", "green"]
Ask = Literal[
    "look_at_light", "charge", "restart", "send_photo", "read_label", "accept_return_label"
]
LIGHTS: tuple[Light, ...] = get_args(Light)
ASKS: tuple[Ask, ...] = get_args(Ask)
LOOK, CHARGE, RESTART, PHOTO, LABEL, ACCEPT = ASKS
READING = (LOOK, LABEL)  # requests that do not change the customer's world
REMEDIES: dict[Light, Ask] = {"dark": CHARGE, "blinking": RESTART}
PHOTO_FROM = 100_00  # price in cents from which a replacement requires a photo
THINGS = (
    "lamp", "phone", "watch", "kettle", "tablet", "camera", "blender", "clock", "drone",
    "e-reader", "fan", "keyboard", "laptop",
)  # fmt: skip
REASONS = {  # reasons besides those of policy.py -> the sentence that the customer hears
    "works": "Nothing is wrong with it.",
    "damage": "We do not replace what was damaged after its delivery.",
}


class Thing(TypedDict):
    """The customer's item in its initial state: plain JSON, a part of a goal."""

    item_id: str
    price: int  # cents
    serial: str
    light: Light
    heals: bool  # whether the remedy for its light repairs it
    damaged: bool  # as a photo shows
    slips: list[Ask]  # actions that the customer does wrong the first time
    manner: list[str]  # what they say before what they see, in turn
    wording: int  # index of the customer's word for the item


class Hands:
    """The customer's world in one episode: an item, and the actions taken with it."""

    def __init__(self, thing: Thing) -> None:
        self._thing = thing
        self.light: Light = thing["light"]
        self.done: set[Ask] = set()
        self._tries: Counter[Ask] = Counter()

    @property
    def state(self) -> tuple[Light, set[Ask]]:
        """The light, and the actions that changed the customer's world."""
        return self.light, self.done.difference(READING)

    def due(self) -> list[Ask]:
        """Return the requests that the policy allows now; empty: it is time to decide."""
        thing, remedy = self._thing, REMEDIES.get(self._thing["light"])
        if LOOK not in self.done:
            return [LOOK]
        if remedy and remedy not in self.done:
            return [remedy]
        if self.light == "green":
            return []
        if thing["price"] >= PHOTO_FROM:
            if PHOTO not in self.done:
                return [PHOTO]
            if thing["damaged"]:
                return []
        return [ask for ask in (LABEL, ACCEPT) if ask not in self.done]

    def verdict(self) -> str:
        """Return what is right once nothing is due: "replace", "mended" or a reason to refuse."""
        if self.light == "green":
            return "works" if self._thing["light"] == "green" else "mended"
        return "damage" if self._thing["damaged"] and PHOTO in self.done else "replace"

    def do(self, ask: Ask) -> Report:
        """Take an action as the customer and report what they see."""
        is_due, is_again, was = ask in self.due(), ask in self.done, self.light
        self._tries[ask] += 1
        slips = ask in self._thing["slips"] and self._tries[ask] == 1
        if not slips:
            self.done.add(ask)
            if ask == REMEDIES.get(was):
                self.light = "green" if self._thing["heals"] else "red"
        return Report(
            text=self._words(ask, slips=slips),
            is_due=is_due,
            is_again=is_again,
            mends=self.light == "green" != was,
        )

    def _words(self, ask: Ask, *, slips: bool) -> str:
        thing, manner = self._thing, self._thing["manner"]
        seen = _DAMAGE if ask == PHOTO and thing["damaged"] else _SEES[ask]
        before = manner[(self._tries.total() - 1) % len(manner)] if manner else ""
        said = self._one_of(_SLIPS[ask] if slips else seen).format(
            light=self._one_of(_LIGHTS[self.light]),
            serial=thing["serial"],
            item_id=thing["item_id"],
        )
        return f"{before} {said}".strip()

    def _one_of(self, wordings: tuple[str, ...]) -> str:
        return wordings[self._thing["wording"] % len(wordings)]


def right_asks(thing: Thing) -> tuple[list[Ask], str]:
    """Return the right requests in order, and the decision that they lead to."""
    hands, asks = Hands(thing), []
    while due := hands.due():
        hands.do(due[0])
        asks.append(due[0])
    return asks, hands.verdict()


def ask_for(ask: Ask) -> Action:
    """Return the call that asks a customer for something."""
    return call("ask_customer", action=ask)


def draw_thing(rng: random.Random, item_id: str, price: int, size: Size) -> Thing:
    """Return a random item; in a small shop, its customer says little."""
    small = size == "small"
    light = rng.choices(LIGHTS, (35, 35, 20, 10))[0]
    thing = Thing(
        item_id=item_id,
        price=price,
        serial=f"S{rng.randrange(10, 100) if small else rng.randrange(10**6, 10**7)}",
        light=light,
        heals=light in REMEDIES and rng.random() < 0.5,
        damaged=light != "green" and rng.random() < 0.4,
        slips=[],
        manner=[] if small else rng.choice(MANNERS),
        wording=0 if small else rng.randrange(6),
    )
    asks, _ = right_asks(thing)
    if len(asks) > 1 and rng.random() < 0.4:
        thing["slips"] = [rng.choice(asks[1:])]  # the light is looked at rightly
    return thing


MANNERS = (
    [],
    ["One moment, I have to get up for that.", "So.", "I am back.", "There."],
    ["I hope that I did it right.", "I am not good with these things.", "My son helped me."],
    ["If it must be.", "Again something to do.", "All right, all right.", "And now?"],
    ["Let me put my glasses on.", "Where do I find that... here.", "Thank you for waiting."],
)
_LIGHTS: dict[Light, tuple[str, ...]] = {
    "dark": ("The light is dark.", "There is no light at all.", "Nothing glows on it."),
    "blinking": ("The light blinks.", "The light goes on and off.", "It keeps flashing at me."),
    "red": ("The light is red.", "It glows red.", "There is a steady red light."),
    "green": ("The light is green.", "It glows green.", "There is a steady green light."),
}
_SEES: dict[Ask, tuple[str, ...]] = {
    LOOK: ("{light}",),
    CHARGE: ("I charged it for an hour. {light}", "It was plugged in for a whole hour. {light}"),
    RESTART: ("I held the button for ten seconds. {light}", "Pressed, counted to ten. {light}"),
    PHOTO: ("The photo is there. It looks like new.", "Sent. No scratch on it, as you see."),
    LABEL: ("It says {serial}.", "There it is: {serial}."),
    ACCEPT: ("I have accepted it in the app.", "The app says: return label accepted."),
}
_DAMAGE = ("The photo is there. You see the crack.", "Sent. Yes, it fell, that is the dent.")
_SLIPS: dict[Ask, tuple[str, ...]] = {
    CHARGE: ("I charged it for a minute. {light}", "It was plugged in for five minutes. {light}"),
    RESTART: ("I tapped the button. {light}", "I pressed the button for a second. {light}"),
    PHOTO: ("The photo is there. It is all blurred.", "Sent, but you can see nothing on it."),
    LABEL: ("It says C{item_id}.", "There is a bar code with C{item_id} below it."),
    ACCEPT: ("The app asked me to log in first.", "The app shows me the label. And now?"),
}

_CLAIMS = f"""
# Things that do not work
- A thing of an order that is {DELIVERED} and does not work is replaced by the same item, if these \
rules say so. It is neither returned nor exchanged for that.
- What only the customer can see or do you ask for with ask_customer, one thing at a time; the \
customer does it and says what came of it. Ask for nothing that these rules do not ask for at this \
point: it is work for the customer, and it changes what they have. Ask for something again only if \
they say that they did it otherwise than described here.
- First {LOOK}. If the light is green, nothing is wrong with the thing: refuse (works).
- If it is dark, ask for {CHARGE}: it must be charged for an hour. If it blinks, ask for \
{RESTART}: the button must be held for ten seconds. If the light is green then, the thing works, \
and nothing more is to be done. If it is not, the thing is broken.
- If the light is red, the thing is broken.
- If a broken thing cost {PHOTO_FROM / 100:.2f} or more, ask for {PHOTO}. If the photo shows that \
it was damaged, refuse (damage). If one can see nothing on it, ask for another one.
- Then ask for {LABEL}, which gives the serial number. It begins with S; any other number is not \
the one. Also ask for {ACCEPT}: the label for the return must be accepted in the customer's app.
- Then confirm and call replace_item.

# More reasons of a refusal
- works: nothing is wrong with the thing
- damage: the thing was damaged after its delivery
"""
RULES: dict[Size, str] = {
    "full": DOCUMENT + _CLAIMS,
    "small": f"{BRIEF} Does not work: ask_customer {LOOK}. Green: refuse works. Dark: {CHARGE} for "
    f"an hour. Blinks: {RESTART}, ten seconds. Green now: done. Not green: broken. Broken and "
    f"{PHOTO_FROM / 100:.2f} or more: {PHOTO}; if damaged refuse damage. Then {LABEL} (S...), "
    f"{ACCEPT}, confirm, replace_item. Done wrongly: ask again.",
}
