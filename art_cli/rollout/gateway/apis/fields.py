"""Request fields that are ignored or refused, with the reason or the alternative.

The request models define the fields that are served. docs/agent-apis.md lists all fields, and a
test compares them with the types of the OpenAI and Anthropic packages. Fields that appear in
neither, such as a client's own `extra_body`, are ignored, and the run says so.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel

from art_cli.rollout.gateway.asked import RequestError

_SAMPLED = "what is sampled from is the experiment's to say: `sampling`"
_LABEL = "a label for the vendor's own use"
_SPEED = "it changes speed and price alone"
_EFFORT = "a policy has no levels of effort; what its template offers is `model.template_args`"
_TEXT = "only text is read and answered"
_LENGTH = "nothing is shortened: what does not fit is refused"
_GRAMMAR = "use `response_format`"
_CACHE = dict.fromkeys(
    ("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"), _SPEED
)

NAMED = 20  # unknown fields of one request, or of one run, that a warning names
NAME = 100  # characters of such a name

UNUSED: dict[str, dict[str, str]] = {  # by API and field: why it has no effect
    "chat": {
        **_CACHE,
        **dict.fromkeys(("frequency_penalty", "presence_penalty"), _SAMPLED),
        **dict.fromkeys(("top_k", "min_p", "repetition_penalty"), _SAMPLED),
        **dict.fromkeys(("metadata", "user", "safety_identifier", "store"), _LABEL),
        **dict.fromkeys(("service_tier", "prediction"), _SPEED),
        **dict.fromkeys(("reasoning_effort", "verbosity"), _EFFORT),
        "chat_template_kwargs": _EFFORT,
    },
    "responses": {
        **_CACHE,
        **dict.fromkeys(("user", "safety_identifier", "access_programs"), _LABEL),
        "client_metadata": _LABEL,
        "service_tier": _SPEED,
        "context_management": _LENGTH,
        "max_tool_calls": "it counts calls of tools that OpenAI runs, and there are none",
        "stream_options": "it pads events against eavesdroppers",
        "background_options": "`background` is refused",
    },
    "messages": {
        **dict.fromkeys(("metadata", "user_profile_id", "workspace_id", "billing_policy"), _LABEL),
        **dict.fromkeys(("cache_control", "service_tier", "speed", "inference_geo"), _SPEED),
        **dict.fromkeys(("diagnostics", "fallback_credit_token"), "it is about the vendor's cache"),
        "fallbacks": "the policy answers whatever it is asked",
        "betas": "a header, which is not read",
        "top_k": _SAMPLED,
        "context_management": _LENGTH,
    },
    "completions": {
        **dict.fromkeys(("frequency_penalty", "presence_penalty"), _SAMPLED),
        **dict.fromkeys(("top_k", "min_p", "repetition_penalty"), _SAMPLED),
        "user": _LABEL,
    },
}
REFUSED: dict[str, dict[str, str]] = {  # by API and field: what to do instead
    "chat": {
        "functions": "OpenAI's field of before; use `tools`",
        "function_call": "OpenAI's field of before; use `tool_choice`",
        "web_search_options": "nothing is searched here; give the agent a tool of its own",
        "modalities": _TEXT,
        "audio": _TEXT,
        "logit_bias": "it would change what is sampled from; use `response_format` or `stop`",
        "moderation": "nothing is moderated here; leave it out",
        **dict.fromkeys(
            ("guided_json", "guided_regex", "guided_choice", "guided_grammar"), _GRAMMAR
        ),
        "structured_outputs": _GRAMMAR,
    },
    "responses": {
        "background": "send the request without it, and wait for the answer",
        "conversation": "use `previous_response_id`, or send the whole input",
        "prompt": "write it out, in `instructions` and `input`",
        "image": _TEXT,
        "moderation": "nothing is moderated here; leave it out",
    },
    "messages": {
        "container": "nothing is run here; give the agent tools of its own",
        "mcp_servers": "no server is called from here; let the agent call its tools",
        "compaction": "no summary is made here; let the agent ask for one in words",
    },
    "completions": {
        "logit_bias": "it would change what is sampled from; use `stop`",
        "suffix": "ask for it in a chat",
        "echo": "the client has the prompt",
        **dict.fromkeys(
            ("guided_json", "guided_regex", "guided_choice", "guided_grammar"),
            "ask `/v1/chat/completions`, by `response_format`",
        ),
    },
}
MEANINGLESS = {"modalities": ["text"], "function_call": "none"}  # as if the field were left out


def check_fields(request: BaseModel, api: str) -> tuple[str, ...]:
    """Return the names of fields that no table has. Raise RequestError if a refused one is set."""
    unknown: list[str] = []
    for name, value in (request.model_extra or {}).items():
        instead = REFUSED[api].get(name)
        if instead and value and value != MEANINGLESS.get(name):
            raise RequestError(400, f"{name}: this is not offered here; {instead}")
        if not instead and value is not None and name not in UNUSED[api]:
            unknown.append(name[:NAME])
    return tuple(unknown[:NAMED])


def unknown_text(counts: Mapping[str, int]) -> str:
    """Return a sentence about unknown fields, given the number of requests that set each."""
    fields = ", ".join(f"{name!r} ({num}x)" for name, num in [*counts.items()][:NAMED])
    where = "docs/agent-apis.md has all others"
    return f"the agent sent fields that nothing reads: {fields}; {where}"
