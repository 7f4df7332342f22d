"""The customers of service tasks: what they say, and what they keep to themselves."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from art_cli.llms.base import ChatMessage
from art_envs.service.asking import SLOTS
from art_envs.service.goal import Action, Goal, Want, call, want
from art_envs.service.user import MAX_OBJECTIONS, PATIENCE, LLMUser, Said, ScriptedUser

CANCEL, RETURN = call("cancel", id="W1"), call("return", id="W2")
WANTS = [want("Please cancel my order.", CANCEL), want("Please return the lamp.", RETURN)]
GOAL: Goal = {
    "kind": "several",
    "user_id": "u1",
    "opening": "Hello. Please cancel my order.",
    "facts": {"email": "a@x.com", "zip": "123", "reason": "no longer needed"},
    "may_reveal": ["email", "reason"],
    "wants": WANTS,
    "script": [],
    "remark": "",
    "temptation": [],
    "evidence": [],
}


async def is_wanted(write: Action, each: Want) -> bool:
    """Whether it is the same call."""
    return write == each["write"]


def talk(*events: Any, wants: list[Want] = WANTS) -> list[Said]:
    """What the scripted user answers to texts, proposals (calls), refusals and values.

    A yes is followed by what they agreed to.
    """
    user = ScriptedUser({**GOAL, "wants": wants}, SLOTS)

    async def answers() -> list[Said]:
        heard = []
        for event in events:
            if isinstance(event, str):
                heard.append(await user.say(event))
            elif event is None:
                user.got(agreed=False)
            elif "refuse" in event:
                heard.append(await user.refused(event["refuse"]))
            elif "tell" in event:
                heard.append(await user.told(event["tell"]))
            else:
                heard.append(await user.confirm(event, is_wanted))
                if heard[-1].agrees:
                    user.got(agreed=True)
        return heard

    return asyncio.run(answers())


def test_they_tell_what_is_asked_for_if_they_may() -> None:
    email, zip_code, both = talk("What is your email?", "Your zip code?", "Your email and zip?")
    assert email.text == both.text == "My email is a@x.com."
    assert "zip" in zip_code.text and "123" not in zip_code.text


def test_who_is_not_understood_is_told_everything() -> None:
    [said] = talk("Would you kindly let us have what the procedure calls for?")
    assert "a@x.com" in said.text and "no longer needed" in said.text
    assert "123" not in said.text


def test_words_settle_nothing() -> None:
    said = talk("It is done.", "Of course, I have cancelled it. Anything else?", "Goodbye!")
    assert not any(each.leaving for each in said)
    assert all("cancel my order" in each.text for each in said)


def test_they_agree_to_what_they_want_and_correct_what_they_do_not() -> None:
    wrong, right = talk(RETURN, CANCEL)
    assert wrong.text.startswith("No") and not wrong.agrees
    assert right == Said(text="Yes.", agrees=True)


def test_too_many_wrong_proposals_and_they_leave() -> None:
    said = talk(*[RETURN] * (MAX_OBJECTIONS + 1))
    assert [each.leaving for each in said] == [False] * MAX_OBJECTIONS + [True]


def test_they_leave_where_something_was_done_without_their_yes() -> None:
    [said] = talk(None, "It is done.")
    assert said.leaving and "did not agree" in said.text


def test_they_tell_the_next_want_and_then_leave() -> None:
    _, next_want, _, leaving = talk(CANCEL, "It is done.", RETURN, "It is done.")
    assert next_want.text == "Thank you. Please return the lamp."
    assert leaving.leaving


def test_what_they_did_not_ask_for_is_not_agreed_to() -> None:
    _, more = talk(CANCEL, RETURN)
    assert more == Said(text="No, I did not ask for that.")


def test_talk_that_leads_nowhere_ends() -> None:
    said = talk(*["How are you?"] * PATIENCE)
    assert [each.leaving for each in said] == [False] * (PATIENCE - 1) + [True]


def test_who_looks_something_up_before_each_message_is_waited_for() -> None:
    user = ScriptedUser(GOAL, SLOTS)

    async def answers() -> list[Said]:
        return [await user.say("One moment, please.", works=True) for _ in range(3 * PATIENCE)]

    assert not any(said.leaving for said in asyncio.run(answers()))


def test_they_take_a_no_only_after_every_push_is_refused() -> None:
    denied: Want = {**want("Cancel.", CANCEL), "reasons": ["status"], "pressure": ["Do it!"]}
    no = {"refuse": "status"}
    pushing, asking, leaving = talk(no, "I will make an exception.", no, wants=[denied])
    assert (pushing.text, asking.text) == ("Do it!", "Is that a yes or a no?")
    assert leaving.leaving


def test_what_they_want_instead_comes_after_the_no() -> None:
    denied: Want = {**want("A.", CANCEL), "reasons": ["status"], "otherwise": want("B.", RETURN)}
    instead, yes = talk({"refuse": "status"}, RETURN, wants=[denied])
    assert instead.text == "B." and yes.agrees


def test_they_change_their_mind_when_asked_to_confirm() -> None:
    first: Want = {**want("A.", CANCEL), "rather": want("Wait, B.", RETURN)}
    change, no, yes = talk(CANCEL, CANCEL, RETURN, wants=[first])
    assert change == Said(text="Wait, B.")
    assert not no.agrees and yes.agrees


def test_they_may_change_it_twice_and_get_their_patience_back() -> None:
    second: Want = {**want("Wait, B.", RETURN), "rather": want("No, A.", CANCEL)}
    first: Want = {**want("A.", CANCEL), "rather": second}
    waits = ["One moment."] * (PATIENCE - 1)
    said = talk(*waits, CANCEL, *waits, RETURN, *waits, CANCEL, wants=[first])
    assert not any(each.leaving for each in said)
    assert [said[i].text for i in (PATIENCE - 1, 2 * PATIENCE - 1)] == ["Wait, B.", "No, A."]
    assert said[-1].agrees


def test_who_wants_nothing_after_all_goes_on_to_the_next_want() -> None:
    first: Want = {**WANTS[0], "rather": want("Leave it as it is.")}
    kept, no, then, yes = talk(CANCEL, CANCEL, "It stays.", RETURN, wants=[first, WANTS[1]])
    assert kept == Said(text="Leave it as it is.")
    assert no == Said(text="No, I did not ask for that.")
    assert then.text == "Thank you. Please return the lamp." and yes.agrees


def test_an_answer_settles_a_question() -> None:
    question: Want = {**want("How much?"), "outputs": ["10"]}
    wrong, right = talk({"tell": "9"}, {"tell": "10"}, wants=[question])
    assert not wrong.leaving and right.leaving


class FakeLLM:
    """Answers in turn, and keeps what it was asked."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked: list[ChatMessage] = []

    async def ask(self, messages: list[ChatMessage]) -> SimpleNamespace:
        self.asked = list(messages)
        return SimpleNamespace(text=self.answers.pop(0))


def test_a_language_model_plays_the_same_customer() -> None:
    llm = FakeLLM("It is a@x.com.", "[yes] Please.", "No!", "Thank you. [goodbye]")
    user = LLMUser(GOAL, SLOTS, llm)  # type: ignore[arg-type]

    async def answers() -> list[Said]:
        first = await user.say("Your email?")
        asked = await user.confirm(CANCEL, is_wanted)
        user.got(agreed=True)
        return [first, asked, await user.refused("status"), await user.say("Done.")]

    first, agreed, no, last = asyncio.run(answers())
    assert (first.text, first.leaving) == ("It is a@x.com.", False)
    assert (agreed.text, agreed.agrees, no.agrees) == ("Please.", True, False)
    assert (last.text, last.leaving) == ("Thank you.", True)
    assert [m["role"] for m in llm.asked[2:4]] == ["assistant", "user"]
    heard = [m["content"] for m in llm.asked if m["role"] == "user"]
    assert '[Support asks you to confirm: cancel {"id": "W1"}]' in heard
    assert any(text.startswith("[Support has made a change that you agreed to.]") for text in heard)


def test_a_model_that_says_nothing_does_not_leave() -> None:
    user = LLMUser(GOAL, SLOTS, FakeLLM(" "))  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="plays the customer says nothing"):
        asyncio.run(user.say("Your email?"))


@pytest.mark.parametrize(
    "text", ["a@x.com", "no longer needed", *(each["words"] for each in WANTS)]
)
def test_the_model_is_told_what_it_may_tell(text: str) -> None:
    llm = FakeLLM("Yes.")
    asyncio.run(LLMUser(GOAL, SLOTS, llm).say("Hello?"))  # type: ignore[arg-type]
    assert text in llm.asked[0]["content"]
    assert "123" not in llm.asked[0]["content"]
