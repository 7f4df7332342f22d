"""Asking over the network: what is tried again, what it costs, and what is not told."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from loopback_judge import Answer, Ask, LoopbackJudge, Step, dying, hanging, refused, says

from art_cli.config.sections.judge import JudgeConfig
from art_cli.config.sections.llm import LLMConfig, PricesConfig
from art_cli.errors import BudgetError, LLMError, PreflightError
from art_cli.llms.base import Budget, NativeCall, Reply, Usage
from art_cli.llms.remote import RemoteLLM

KEY = "my-own-secret-0123456789"
QUESTION = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 2?"}]
FOUR = says("4")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without seconds between attempts, and without the keys of whoever runs the tests."""
    monkeypatch.setattr("art_cli.llms.remote.FIRST_WAIT", 0.01)
    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_API_BASE", "_BASE_URL")):
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True, params=["openai/loopback", "hosted_vllm/loopback"])
def provider(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A server of one's own, asked directly and through litellm."""
    monkeypatch.setattr(LoopbackJudge, "model", request.param)
    return request.param


def asked(
    server: LoopbackJudge,
    num: int = 1,
    budget: Budget | None = None,
    schema: dict[str, Any] | None = None,
    **settings: Any,
) -> tuple[list[Reply], Usage]:
    """The answers to `num` questions at once."""
    cfg = JudgeConfig(**{"model": server.model, "api_base": server.api_base} | settings)

    async def go() -> tuple[list[Reply], Usage]:
        llm = RemoteLLM(cfg, budget)
        try:
            asking = [asyncio.ensure_future(llm.ask(QUESTION, schema)) for _ in range(num)]
            replies = await asyncio.gather(*asking, return_exceptions=True)
        finally:
            await llm.close()
        for reply in replies:
            if isinstance(reply, BaseException):
                raise reply
        return replies, llm.usage  # type: ignore[return-value]

    return asyncio.run(go())


def fails(server: LoopbackJudge, **settings: Any) -> LLMError:
    with pytest.raises(LLMError) as raised:
        asked(server, **settings)
    return raised.value


# ---------------------------------------------------------------- what is sent


def test_the_messages_arrive_as_they_are_with_the_extra_parameters() -> None:
    with LoopbackJudge(then=FOUR) as server:
        replies, usage = asked(server, params={"temperature": 0.3, "seed": 7})
        assert replies == [Reply(text="4")]
        (ask,) = server.asked
    assert ask.messages == QUESTION
    assert (ask.body["model"], ask.body["temperature"], ask.body["seed"]) == ("loopback", 0.3, 7)
    assert (usage.calls, usage.retries) == (1, 0) and usage.seconds > 0


def test_a_server_of_ones_own_needs_no_key_and_gets_that_of_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with LoopbackJudge(then=FOUR) as server:
        asked(server)
        assert KEY not in str(server.asked[0].headers)


def test_the_key_comes_from_the_variable_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    with LoopbackJudge(then=FOUR) as server:
        asked(server, api_key_env="MY_KEY")
        assert server.asked[0].headers["authorization"] == f"Bearer {KEY}"


def test_tools_are_offered_and_calls_come_back_with_what_they_cost() -> None:
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    call = ("look", '{"at": 1}')
    with LoopbackJudge(lambda ask: Answer(calls=(call,))) as server:
        cfg = LLMConfig(model=server.model, api_base=server.api_base)

        async def go() -> Reply:
            llm = RemoteLLM(cfg)
            assert llm.takes_tools()
            try:
                return await llm.ask(QUESTION, tools=[tool])
            finally:
                await llm.close()

        reply = asyncio.run(go())
        assert server.asked[0].body["tools"] == [tool]
    assert reply.calls == (NativeCall(id="c0", name=call[0], arguments=call[1]),)
    assert (reply.num_read, reply.num_written, reply.usd) == (1000, 100, 0.0)
    assert reply.message and reply.message["tool_calls"][0]["id"] == "c0"


@pytest.mark.parametrize("in_params", [True, False])
def test_a_model_is_made_to_call_a_tool_by_its_alias(in_params: bool) -> None:
    schema = {"type": "object", "properties": {"ids[]": {"type": "array"}}}
    tool = {"type": "function", "function": {"name": "cancel.order", "parameters": schema}}
    forced = {"type": "function", "function": {"name": "cancel.order"}}
    told = [*QUESTION, {"role": "user", "name": "cancel.order", "content": "hi"}]
    with LoopbackJudge(lambda ask: Answer(calls=(("cancel_order", '{"ids": [1]}'),))) as server:
        params = {"tool_choice": forced} if in_params else {}
        cfg = LLMConfig(model=server.model, api_base=server.api_base, params=params)
        more = {"tool_choice": "auto" if in_params else forced}

        async def go() -> Reply:
            llm = RemoteLLM(cfg)
            try:
                return await llm.ask(told, tools=[tool], more=more)
            finally:
                await llm.close()

        reply = asyncio.run(go())
        body = server.asked[0].body
    assert body["tool_choice"]["function"]["name"] == "cancel_order"
    assert [*body["tools"][0]["function"]["parameters"]["properties"]] == ["ids"]
    assert body["messages"][-1]["name"] == "cancel.order"  # of a user, who is no tool
    assert reply.calls == (NativeCall(id="c0", name="cancel.order", arguments='{"ids[]": [1]}'),)


def test_an_answer_that_hit_its_limit_is_marked() -> None:
    with LoopbackJudge(says("4 and", finish="length")) as server:
        assert asked(server)[0] == [Reply(text="4 and", cut=True)]


# ---------------------------------------------------------------- what is asked again


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529])
def test_what_may_pass_is_asked_again(status: int) -> None:
    with LoopbackJudge(refused(status), refused(status), then=FOUR) as server:
        replies, usage = asked(server)
        assert replies == [Reply(text="4")] and len(server.asked) == 3
    assert (usage.calls, usage.retries) == (1, 2)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_what_will_not_pass_is_not_asked_again(status: int) -> None:
    with LoopbackJudge(then=refused(status, "no such thing")) as server:
        error = fails(server)
        assert len(server.asked) == 1
    assert f"{LoopbackJudge.model}: " in str(error) and "no such thing" in str(error)


def test_an_account_without_money_is_not_asked_again() -> None:
    with LoopbackJudge(then=refused(429, "insufficient_quota: check your plan")) as server:
        fails(server)
        assert len(server.asked) == 1


def test_retries_have_an_end() -> None:
    with LoopbackJudge(then=refused(500)) as server:
        error = fails(server, retries=3)
        assert len(server.asked) == 4
    assert "(asked 4 times)" in str(error)


def at_once() -> str:
    return "0.4"


def as_a_date() -> str:
    return formatdate(time.time() + 4, usegmt=True)


@pytest.mark.slow
@pytest.mark.parametrize("when", [at_once, as_a_date])
def test_a_server_that_says_how_long_to_wait_is_obeyed(when: Callable[[], str]) -> None:
    with LoopbackJudge(refused(429, Retry_After=when()), then=FOUR) as server:
        began = time.monotonic()
        asked(server)
        assert time.monotonic() - began > 0.35
        assert len(server.asked) == 2


def test_a_server_that_wants_an_hour_is_not_waited_for() -> None:
    with LoopbackJudge(then=refused(429, Retry_After="3600")) as server:
        fails(server)
        assert len(server.asked) == 1


def test_the_waits_grow_and_differ() -> None:
    from art_cli.llms.remote import FIRST_WAIT, LONGEST_WAIT, _wait_before_retry

    waits = [[_wait_before_retry(OSError(), n) or 0 for _ in range(50)] for n in (0, 3, 30)]
    assert all(len(set(w)) > 40 for w in waits)
    assert min(waits[1]) > max(waits[0]) and max(waits[2]) <= 1.5 * LONGEST_WAIT
    assert max(waits[0]) <= 1.5 * FIRST_WAIT


@pytest.mark.slow
def test_a_server_that_hangs_has_a_deadline_and_another_chance() -> None:
    with LoopbackJudge(hanging(), then=FOUR) as server:
        assert asked(server, timeout=2.0)[0] == [Reply(text="4")]
        assert len(server.asked) == 2


def test_a_server_that_always_hangs_is_named_with_its_deadline() -> None:
    with LoopbackJudge(then=hanging()) as server:
        error = fails(server, timeout=0.2, retries=1)
    assert str(error) == f"{LoopbackJudge.model}: no answer within 0.2 s (asked 2 times)"


def test_a_connection_that_breaks_in_the_middle_is_asked_again() -> None:
    def breaks(ask: Ask) -> Answer:
        return Answer(text="4" * 1000, dies=True)

    with LoopbackJudge(breaks, breaks, then=FOUR) as server:
        assert asked(server)[0] == [Reply(text="4")]
        assert len(server.asked) == 3


def test_a_server_that_is_not_there_is_an_error_that_names_it() -> None:
    with LoopbackJudge() as server:
        pass
    assert f"{LoopbackJudge.model}: " in str(fails(server, retries=1))


def test_no_more_calls_are_under_way_than_allowed() -> None:
    most, now = 0, 0
    three = threading.Event()

    def count(ask: Ask) -> Answer:
        nonlocal most, now
        now += 1
        most = max(most, now)
        if now == 3:
            three.set()
        three.wait(60)
        time.sleep(0.05)
        now -= 1
        return Answer(text="4")

    with LoopbackJudge(then=count) as server:
        asked(server, num=12, concurrency=3)
        assert most == 3 and len(server.asked) == 12


# ---------------------------------------------------------------- fallbacks


def with_fallback(server: LoopbackJudge, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Settings under which the same server is the fallback, too, under another name."""
    monkeypatch.setenv("OPENAI_BASE_URL", server.api_base)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    return {"fallbacks": ["openai/second"], "retries": 1}


@pytest.mark.parametrize("step", [refused(500), refused(401), dying])
def test_a_fallback_answers_where_the_first_fails(
    monkeypatch: pytest.MonkeyPatch, step: Step
) -> None:
    def only_second(ask: Ask) -> Answer:
        return FOUR(ask) if ask.body["model"] == "second" else step(ask)

    def gone(ask: Ask) -> Answer:
        return Answer(text="4") if ask.body["model"] == "second" else Answer(dies=True)

    with LoopbackJudge(then=gone if step is dying else only_second) as server:
        replies, _ = asked(server, **with_fallback(server, monkeypatch))
        assert replies == [Reply(text="4")]
        assert server.asked[-1].headers["authorization"] == f"Bearer {KEY}"
        assert all(KEY not in str(ask.headers) for ask in server.asked[:-1])


def test_if_all_fail_all_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with LoopbackJudge(then=refused(401, "who are you?")) as server:
        error = fails(server, **with_fallback(server, monkeypatch))
        assert len(server.asked) == 2
    assert f"{LoopbackJudge.model}: " in str(error) and "; then openai/second: " in str(error)


# ---------------------------------------------------------------- money


def test_calls_are_paid_at_the_prices_that_are_given(tmp_path: Path) -> None:
    budget = Budget(None, tmp_path / "costs.jsonl")
    with LoopbackJudge(refused(500), then=FOUR) as server:
        asked(server, num=3, budget=budget, prices=PricesConfig(input=2.0, output=10.0))
    assert budget.spent == pytest.approx(3 * (1000 * 2 + 100 * 10) / 1e6)
    assert Budget(None, tmp_path / "costs.jsonl").spent == pytest.approx(budget.spent)


def test_a_known_model_has_litellms_price(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "")
    budget = Budget(None)
    with LoopbackJudge(then=FOUR) as server:
        with_fallback(server, monkeypatch)
        asked(server, budget=budget, model="openai/gpt-4.1", api_base=None)
    assert budget.spent == pytest.approx((1000 * 2 + 100 * 8) / 1e6)


def test_when_the_money_is_spent_nobody_is_asked_not_even_a_fallback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    budget, prices = Budget(0.007), PricesConfig(input=2.0, output=10.0)
    with LoopbackJudge(then=FOUR) as server:
        more = with_fallback(server, monkeypatch) | {"params": {"max_tokens": 100}}
        more["fallbacks"] = ["openai/gpt-4.1"]
        asked(server, num=2, budget=budget, prices=prices, **more)
        with pytest.raises(BudgetError):
            asked(server, budget=budget, prices=prices, **more)
        assert len(server.asked) == 2


LONG = 8000  # tokens that a model writes where nobody stops it


def chatty(ask: Ask) -> Answer:
    """Writes as much as it may, and says so."""
    written = min(LONG, ask.body.get("max_tokens") or LONG)
    read = len(json.dumps(ask.body["messages"])) // 4
    usage = {"prompt_tokens": read, "completion_tokens": written}
    return Answer(text="word " * (written // 2), usage=usage)


@pytest.mark.parametrize("long", [200, LONG])
def test_eight_long_answers_at_once_do_not_cost_more_than_the_limit(long: int) -> None:
    told: list[str] = []
    budget, prices = Budget(0.05, say=told.append), PricesConfig(input=1.0, output=10.0)
    more: dict[str, Any] = {"prices": prices, "params": {"max_tokens": long}}
    with LoopbackJudge(then=chatty, latency=0.05) as server:
        with pytest.raises(BudgetError, match=r"max_usd=0.05 is (used up|not enough): \$0\.0"):
            asked(server, num=8 if long == LONG else 64, budget=budget, **more)
        assert budget.spent == pytest.approx(
            sum(len(json.dumps(a.body["messages"])) // 4 + 10 * long for a in server.asked) / 1e6
        )
    assert budget.spent <= 0.05 and told == []
    assert len(server.asked) == (0 if long == LONG else 24)  # as many as there was money for


@pytest.mark.parametrize(
    "usage",
    [
        None,
        [],
        "many",
        {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
        {"prompt_tokens": -1000, "completion_tokens": -100, "total_tokens": -1100},
        {"prompt_tokens": float("nan"), "completion_tokens": float("nan"), "total_tokens": 0},
        {"prompt_tokens": float("inf"), "completion_tokens": 1e300, "total_tokens": 1e300},
        {"prompt_tokens": 10**15, "completion_tokens": 10**15, "total_tokens": 10**15},
        {"prompt_tokens": "a thousand", "completion_tokens": "100", "total_tokens": {}},
        {"prompt_tokens": True, "completion_tokens": None, "total_tokens": [1]},
    ],
)
def test_what_a_server_does_not_count_or_counts_as_nonsense_is_counted_by_its_bytes(
    usage: Any, provider: str
) -> None:
    told: list[str] = []
    budget, prices = Budget(None, say=told.append), PricesConfig(input=1.0, output=10.0)
    text = "ein längerer Satz, und 你好 " * 30
    with LoopbackJudge(then=lambda ask: Answer(text=text, usage=usage)) as server:
        try:
            replies, _ = asked(server, num=3, budget=budget, prices=prices, retries=0)
        except LLMError:  # litellm itself refuses some of them
            assert provider != "openai/loopback"
            assert budget.spent >= 3 * 32768 * 10 / 1e6
            return
    assert [r.text for r in replies] == [text] * 3
    prompt, said = (len(t.encode()) for t in (json.dumps(QUESTION), text))
    low = 3 * (prompt + 10 * said) / 1e6
    assert low <= budget.spent <= low + 3 * (100 + 10 * 200) / 1e6
    assert len(told) == 1 and f"{LoopbackJudge.model} reports no token counts" in told[0]
    assert (replies[0].num_read, replies[0].num_written) == (0, 0)


def silent_and_closed(ask: Ask) -> Answer:
    return Answer(text="4" * 1000, dies=True)


HANGING = hanging()


@pytest.mark.parametrize(
    "step",
    [
        HANGING,
        silent_and_closed,
        refused(504),
        lambda ask: Answer(raw=b"<html>Good evening</html>"),
        lambda ask: Answer(raw=b""),
    ],
)
def test_a_call_without_an_answer_counts_with_all_that_it_can_have_cost(step: Step) -> None:
    budget, prices = Budget(1.0), PricesConfig(input=1.0, output=100.0)
    more: dict[str, Any] = {"prices": prices, "params": {"max_tokens": 1000}, "retries": 0}
    seconds = 2.0 if step is HANGING else 60.0  # a call that cannot even connect in time is free
    with LoopbackJudge(then=step) as server, pytest.raises(LLMError):
        asked(server, budget=budget, timeout=seconds, **more)
    assert server.asked
    assert 0.1 < budget.spent < 0.101


@pytest.mark.parametrize("step", [refused(500), refused(429), refused(401), refused(503), None])
def test_a_call_that_was_refused_or_never_arrived_costs_nothing(step: Step | None) -> None:
    budget, prices = Budget(1.0), PricesConfig(input=1.0, output=100.0)
    more: dict[str, Any] = {"prices": prices, "params": {"max_tokens": 1000}, "retries": 1}
    with LoopbackJudge(then=step) as server:
        if step:
            with pytest.raises(LLMError):
                asked(server, budget=budget, **more)
    if step is None:  # nobody is there any longer
        with pytest.raises(LLMError):
            asked(server, budget=budget, **more)
    assert budget.spent == 0
    asked_again = asyncio.run(budget.reserve("x", 1.0))  # nothing is left set aside
    assert asked_again.usd == 1.0


def test_a_call_that_is_broken_off_here_counts_too(tmp_path: Path) -> None:
    budget = Budget(1.0, tmp_path / "costs.jsonl")
    prices = PricesConfig(input=1.0, output=100.0)

    async def go(server: LoopbackJudge) -> None:
        cfg = LLMConfig(
            model=server.model,
            api_base=server.api_base,
            prices=prices,
            params={"max_tokens": 1000},
        )
        llm = RemoteLLM(cfg, budget)
        asking = asyncio.ensure_future(llm.ask(QUESTION))
        while not (server.asked or asking.done()):
            await asyncio.sleep(0.01)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await llm.close()

    with LoopbackJudge(then=hanging()) as server:
        asyncio.run(go(server))
    assert 0.1 < budget.spent < 0.101
    assert Budget(1.0, tmp_path / "costs.jsonl").spent == pytest.approx(budget.spent)


def test_a_limit_that_could_not_be_kept_is_refused_unasked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("DASHSCOPE_API_KEY", KEY)
    prices = PricesConfig(input=1.0, output=1.0)
    own: dict[str, Any] = {"model": LoopbackJudge.model, "api_base": "http://127.0.0.1:1"}
    refusals: list[tuple[dict[str, Any], str]] = [
        (own, "no price is known for .*/loopback; add prices"),
        (own | {"prices": prices}, r"nobody knows how long an answer of .*: \{max_tokens: 2000"),
        (own | {"prices": prices, "params": {"max_tokens": -1}}, "nobody knows how long"),
        ({"model": "dashscope/qwen-flash"}, "no price is known for dashscope/qwen-flash"),
        ({"model": "openai/o3", "fallbacks": ["openai/none"]}, "no price is known for openai/none"),
    ]
    for settings, words in refusals:
        with pytest.raises(PreflightError, match=words):
            RemoteLLM(JudgeConfig(**settings), Budget(1.0))
        RemoteLLM(JudgeConfig(**settings), Budget(None))
    free = own | {"prices": PricesConfig(input=1.0, output=0.0)}
    for fine in (free, {"model": "openai/o3"}):
        RemoteLLM(JudgeConfig(**fine), Budget(1.0))


# ---------------------------------------------------------------- keys, and what cannot be called


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("status", [400, 401, 500])
def test_a_key_is_in_no_message(monkeypatch: pytest.MonkeyPatch, named: bool, status: int) -> None:
    def tell(ask: Ask) -> Answer:
        told = f"bad key {ask.headers['authorization']} sk-live-abcdefghijkl AIzaSyA0123456789"
        return Answer(text=told, status=status)

    with LoopbackJudge(then=tell) as server:
        more = with_fallback(server, monkeypatch)
        if named:
            monkeypatch.setenv("MY_KEY", KEY + "-named")
            more["api_key_env"] = "MY_KEY"
        error = str(fails(server, **more))
    assert "bad key Bearer" in error
    for secret in (KEY, "sk-live-abcdefghijkl", "AIzaSyA0123456789"):
        assert secret not in error


def test_a_message_of_a_server_without_a_key_is_told_as_it_is() -> None:
    with LoopbackJudge(then=refused(400, "none of the models is loaded")) as server:
        assert "none of the models is loaded" in str(fails(server))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"model": "openai/o3"}, "openai/o3 needs OPENAI_API_KEY in the environment or in .env"),
        ({"model": "anthropic/claude-sonnet-4-5"}, "needs ANTHROPIC_API_KEY"),
        ({"model": "openai/o3", "api_key_env": "MY_KEY"}, "MY_KEY is not set; put the key for"),
        ({"model": "o33"}, "'o33' is not a model that litellm knows how to call"),
        (
            {"model": "openai/x", "api_base": "http://127.0.0.1:1", "fallbacks": ["openai/o3"]},
            "openai/o3 needs OPENAI_API_KEY",
        ),
    ],
)
def test_what_cannot_be_called_is_refused_unasked(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(PreflightError) as raised:
        RemoteLLM(JudgeConfig(**settings))
    assert words in str(raised.value)


def test_how_much_a_model_reads_is_the_least_of_all_that_may_be_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    known, unknown = "openai/gpt-4.1", "openai/no-such-model"
    assert RemoteLLM(JudgeConfig(model=known)).max_input_tokens > 1_000_000
    assert RemoteLLM(JudgeConfig(model=known, fallbacks=[unknown])).max_input_tokens == 32768
    assert RemoteLLM(JudgeConfig(model=known, max_input_tokens=600)).max_input_tokens == 600


def test_what_an_answer_depends_on_holds_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    same = {"model": "openai/o3", "api_key_env": "MY_KEY"}
    one, other = (RemoteLLM(JudgeConfig(**same, params=p)) for p in ({}, {"seed": 1}))
    assert one.identity != other.identity and KEY not in str(one.identity)


@pytest.mark.slow
def test_litellm_is_imported_without_asking_for_its_price_map() -> None:
    code = (
        "import sys, socket; import art_cli.llms.remote as r; assert 'litellm' not in sys.modules;"
        "socket.socket.connect = lambda *a: sys.exit('connected to the network');"
        "r._import_litellm(); assert 'litellm' in sys.modules"
    )
    environment = {k: v for k, v in os.environ.items() if not k.startswith("LITELLM")}
    result = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=600
    )
    assert (result.returncode, result.stdout) == (0, ""), result.stderr
