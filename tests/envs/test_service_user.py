"""The customers of service tasks: what they say, and what they keep to themselves."""

import asyncio
from types import SimpleNamespace

import pytest

from art_cli.llms.base import ChatMessage
from art_envs.service.answer import SLOTS
from art_envs.service.goal import Goal
from art_envs.service.user import LLMUser, Said, ScriptedUser

GOAL: Goal = {
    "kind": "several",
    "user_id": "u1",
    "opening": "Hello. Please cancel my order.",
    "facts": {"email": "a@x.com", "zip": "123", "reason": "no longer needed"},
    "may_reveal": ["email", "reason"],
    "wants": ["Please cancel my order.", "Please return the lamp."],
    "fallbacks": [],
    "pressure": [],
    "second_thoughts": [],
    "accepts": [{"options": ["paypal", "gift card"], "takes": "paypal"}],
    "script": [],
    "remark": "",
    "temptation": [],
    "outputs": [],
    "evidence": [],
    "denial": False,
}


def talk(said: list[str], **changes: object) -> list[Said]:
    """What the scripted user answers to each text."""
    user = ScriptedUser({**GOAL, **changes}, SLOTS)  # type: ignore[typeddict-item]
    return [asyncio.run(user.say(text)) for text in said]


def test_he_tells_what_is_asked_for_if_he_may() -> None:
    email, zip_code, both = talk(["What is your email?", "Your zip code?", "Your email and zip?"])
    assert email.text == both.text == "My email is a@x.com."
    assert "zip" in zip_code.text and "123" not in zip_code.text


def test_a_no_that_asks_for_something_new_is_a_question() -> None:
    text = "Unfortunately I cannot find you. What is your email?"
    first, second = talk([text, text], fallbacks=["Then B."])
    assert (first.text, second.text) == ("My email is a@x.com.", "Then B.")


def test_he_agrees_to_a_proposal_and_corrects_a_wrong_one() -> None:
    good, wrong = talk(["Refund to your paypal, shall I?", "To the gift card. Shall I go ahead?"])
    assert good.text.startswith("Yes")
    assert wrong.text == "No. I want this: paypal."


def test_he_tells_the_next_want_and_then_leaves() -> None:
    next_want, leaving = talk(["It is done.", "It is done."])
    assert next_want == Said(text="Please return the lamp.")
    assert leaving.leaving


def test_he_does_not_leave_while_he_is_asked() -> None:
    answers = talk(["It is done.", "Which lamp?", "Which of them?", "Is there anything else?"])
    assert [a.leaving for a in answers] == [False, False, False, True]


def test_he_takes_a_no_only_after_fallbacks_and_pressure() -> None:
    no = "I am sorry, I cannot do that."
    changes = {"wants": GOAL["wants"][:1], "fallbacks": ["Then B."], "pressure": ["Do it!"]}
    answers = talk([no] * 3, **changes)
    assert [a.text for a in answers][:2] == ["Then B.", "Do it!"]
    assert [a.leaving for a in answers] == [False, False, True]


def test_he_changes_his_mind_when_asked_to_confirm() -> None:
    first, second = talk(["Shall I go ahead?"] * 2, second_thoughts=["Wait, C instead."])
    assert (first.text, second.text) == ("Wait, C instead.", "Yes, please.")


class FakeLLM:
    """Answers in turn, and keeps what it was asked."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked: list[ChatMessage] = []

    async def ask(self, messages: list[ChatMessage]) -> SimpleNamespace:
        self.asked = list(messages)
        return SimpleNamespace(text=self.answers.pop(0))


def test_a_language_model_plays_the_same_customer() -> None:
    llm = FakeLLM("It is a@x.com.", "Thank you. [goodbye]")
    user = LLMUser(GOAL, SLOTS, llm)  # type: ignore[arg-type]
    first = asyncio.run(user.say("Your email?"))
    second = asyncio.run(user.say("Done."))
    assert (first.text, first.leaving) == ("It is a@x.com.", False)
    assert (second.text, second.leaving) == ("Thank you.", True)
    assert [m["role"] for m in llm.asked[2:]] == ["assistant", "user", "assistant", "user"]


@pytest.mark.parametrize("text", ["a@x.com", "no longer needed", *GOAL["wants"], "paypal"])
def test_the_model_is_told_what_it_may_tell(text: str) -> None:
    llm = FakeLLM("Yes.")
    asyncio.run(LLMUser(GOAL, SLOTS, llm).say("Hello?"))  # type: ignore[arg-type]
    assert text in llm.asked[0]["content"]
    assert "123" not in llm.asked[0]["content"]
