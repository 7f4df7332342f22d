"""Every field of the vendors' requests is served, said to have no effect, or refused."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from anthropic.types import message_create_params as anthropic_params
from anthropic.types.beta import message_create_params as beta_params
from openai.types.chat import completion_create_params as chat_params
from openai.types.responses import response_create_params as responses_params

from art_cli.rollout.gateway.apis.chat import ChatApi, ChatRequest
from art_cli.rollout.gateway.apis.fields import REFUSED, UNUSED
from art_cli.rollout.gateway.apis.messages.api import MessagesApi, MessagesRequest
from art_cli.rollout.gateway.apis.responses.api import ResponsesApi, ResponsesRequest
from art_cli.rollout.gateway.apis.responses.store import ResponseStore
from art_cli.rollout.gateway.asked import RequestError

ROOT = Path(__file__).parents[4]
SAID = {"messages": [{"role": "user", "content": "a"}]}
APIS: dict[str, tuple[Any, Any, list[Any], dict[str, Any]]] = {
    "chat": (ChatApi, ChatRequest, [chat_params.CompletionCreateParamsBase], SAID),
    "responses": (
        lambda: ResponsesApi(ResponseStore()),
        ResponsesRequest,
        [responses_params.ResponseCreateParamsBase],
        {"input": "a"},
    ),
    "messages": (
        MessagesApi,
        MessagesRequest,
        [anthropic_params.MessageCreateParamsBase, beta_params.MessageCreateParamsBase],
        SAID | {"max_tokens": 9},
    ),
}


@pytest.mark.parametrize("api", APIS)
def test_every_field_of_the_vendors_package_is_known(api: str) -> None:
    """Of the versions that docs/agent-apis.md names: a newer one may have more."""
    package, version = (anthropic, "2.14.") if api == "messages" else (openai, "3.57.")
    if not package.__version__.startswith(version):
        pytest.skip(f"{package.__name__} is {package.__version__}; the table is of {version}x")
    _, model, types, _ = APIS[api]
    bases = [base for each in types for base in each.__mro__]
    theirs = {name for base in bases for name in vars(base).get("__annotations__", ())}
    known = {*model.model_fields, *UNUSED[api], *REFUSED[api]}
    assert theirs - known == set()
    assert not set(model.model_fields) & {*UNUSED[api], *REFUSED[api]}
    assert not set(UNUSED[api]) & set(REFUSED[api])


def test_the_table_in_the_docs_is_that_of_the_script() -> None:
    table = runpy.run_path(str(ROOT / "scripts" / "api_fields.py"))["table"]
    assert (ROOT / "docs" / "agent-apis.md").read_text(encoding="utf-8").endswith(table())


@pytest.mark.parametrize(("api", "field"), [(api, f) for api in APIS for f in REFUSED[api]])
def test_what_would_change_an_answer_is_refused_unless_it_is_empty(api: str, field: str) -> None:
    make, _, _, least = APIS[api]

    def read(value: Any) -> None:
        make().read(json.dumps(least | {field: value}).encode())

    with pytest.raises(RequestError, match=f"{field}: this is not offered here; ") as raised:
        read([{"x": 1}])
    assert raised.value.status == 400
    for empty in (None, [], {}, False, ""):
        read(empty)


@pytest.mark.parametrize(("api", "field"), [(api, f) for api in APIS for f in UNUSED[api]])
def test_what_has_no_effect_is_accepted(api: str, field: str) -> None:
    make, _, _, least = APIS[api]
    question = make().read(json.dumps(least | {field: "x"}).encode())
    assert question.asked.messages == [{"role": "user", "content": "a"}]


def test_a_field_that_asks_for_what_there_is_is_accepted() -> None:
    ChatApi().read(json.dumps(SAID | {"modalities": ["text"], "function_call": "none"}).encode())
