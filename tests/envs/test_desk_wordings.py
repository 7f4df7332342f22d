"""The right service in other words earns the same, and gets the same answers."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from cases import slow_but

from art_cli.rollout.rollout import play_episode
from art_envs.airline.desk import AirlineDesk
from art_envs.retail.desk import RetailDesk
from art_envs.service.desk import ServiceDesk
from art_envs.service.goal import DONE

# What the right conversations say, and ten other ways to say it.
OTHERWISE = {
    "Please tell me your email, or your full name and zip code.": (
        "Who are you?",
        "Happy to help! Could you give me the email on your account, or your name and zip?",
        "I can\N{RIGHT SINGLE QUOTATION MARK}t find you yet. Your e-mail, or name plus postcode?",
        "Unfortunately I cannot act before I know who you are: email, or name and postal code?",
        "To proceed I have to verify your identity. Which email do you use? Name and zip do too.",
        "Identify yourself, please.",
        "Sorry to hear that! Let me look you up first. Email? Or your first and last name and zip?",
        "Would you be so kind as to let me know how I can find your account?",
        "PLEASE GIVE ME YOUR EMAIL OR NAME AND ZIP",
        "hey :) email or name + zip?",
    ),
    "What is your user id?": (
        "Who are you?",
        "Could you share your user ID with me, please?",
        "I won\N{RIGHT SINGLE QUOTATION MARK}t be able to help before I have your user id.",
        "Unfortunately I cannot look anything up without your customer number.",
        "To proceed I have to verify your identity: the user id, please.",
        "Identify yourself, please.",
        "Sorry to hear that! Let me look you up first. User id?",
        "Would you be so kind as to let me know how I can find your account?",
        "USER ID PLEASE",
        "hey :) what's your user id?",
    ),
    DONE: (
        "Done!",
        "That has been taken care of. Can I help you with anything else?",
        "All set. Unfortunately it may take a few days until you see it.",
        "I'm sorry that it took so long. You will get an email. Is there more that I can do?",
        "Your request went through; nothing else is needed from you. Shall we go on?",
        "ok",
        "Impossible things take a little longer, but this one was easy: finished.",
        "I have made the change as you confirmed it. Would you like me to do anything else?",
        "THE CHANGE IS MADE.",
        "yep, sorted :)",
    ),
}
QUESTIONS = {
    "reason": (
        "Why?",
        "May I ask for the reason, please?",
        "Could you tell me what made you decide so?",
        "Unfortunately I cannot go on without a reason. What is it?",
        "For our records, why do you wish to do this?",
        "Reason?",
        "I'm sorry to see you go. Is there a reason for it?",
        "Would you mind explaining a little?",
        "PLEASE STATE YOUR REASON",
        "oh, how come?",
    ),
    "payment": (
        "How do you want to pay?",
        "Which card or account shall I use, please?",
        "Where should the money go to, or come from?",
        "Unfortunately I cannot choose for you. Which payment method?",
        "To proceed I need a payment method. Which one would you like?",
        "Payment?",
        "Shall I put it on a card, on paypal or on a gift card?",
        "Would you mind telling me about the financial side?",
        "PAYMENT METHOD PLEASE",
        "and who's paying for this? card? paypal?",
    ),
}
DESKS: tuple[tuple[type[ServiceDesk], int], ...] = ((RetailDesk, 2), (AirlineDesk, 3))


def reworded(script: list[Any], how: int) -> Iterator[str]:
    """The turns of the right conversation, its texts in another way."""
    for step in script:
        if not isinstance(step, str):
            yield f"<tool_call>{json.dumps(step)}</tool_call>"
        elif step in OTHERWISE:
            yield OTHERWISE[step][how]
        else:
            yield QUESTIONS["reason" if "reason" in step else "payment"][how]


@pytest.mark.parametrize("how", slow_but((3,), range(10)))
@pytest.mark.parametrize(("env", "level"), DESKS)
def test_other_words_earn_the_same(env: type[ServiceDesk], level: int, how: int) -> None:
    cfg = env.Config(level=level)
    earned = []
    for scenario in itertools.islice(env.scenarios(cfg, "test"), 100):
        desk = env(scenario, cfg)
        episode = play_episode(desk, reworded(scenario.data["goal"]["script"], how).__next__)
        heard = " ".join(m["content"] for m in episode.messages[2:] if m["role"] == "user")
        goal = scenario.data["goal"]
        known = [goal["facts"][slot] for slot in goal["may_reveal"]]
        earned.append(episode.reward == 1 and any(fact in heard for fact in known))
    assert sum(earned) >= 97
