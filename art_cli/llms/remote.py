"""Models behind an API: any provider through litellm, or the user's own server.

litellm hides retries that multiply its timeouts, so its retries are turned off. Retries happen here
instead, where they are counted and have a deadline. Only this file imports litellm, and only when
needed, because the import takes seconds. A server that speaks OpenAI's protocol (vLLM, Ollama,
llama.cpp) is called without litellm, in less than half the CPU time (scripts/bench/README.md).
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import time
import warnings
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import ModuleType
from typing import Any

import httpx

from art_cli.chat.tool_formats.names import ToolNames
from art_cli.config.sections.llm import LLMConfig
from art_cli.errors import BudgetError, LLMError, PreflightError
from art_cli.keys import mask_keys
from art_cli.llms.answer import Answer, BadAnswer, answer_of
from art_cli.llms.base import Budget, ChatMessage, Reply, Schema, Tools, Usage, request_of
from art_cli.llms.openai_server import OpenAIServer
from art_cli.llms.prices import Rates
from art_cli.system.child_server import ChildServer

FIRST_WAIT, LONGEST_WAIT = 0.5, 60.0  # seconds before another attempt, doubling
LONGEST_RETRY_AFTER = 300.0  # seconds; a longer Retry-After is not waited for
GRACE = 5.0  # seconds beyond litellm's own timeout
UNKNOWN_CONTEXT = 32768  # tokens, if litellm does not know the model
RETRYABLE = {408, 409, 425, 429}
TOO_LATE = {408, 504, 524}  # the gateway timed out, but the model may have answered
NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
SHORTEST_KEY = 6  # characters; a shorter value may be an ordinary word
NAME = re.compile("KEY|TOKEN|SECRET|PASSWORD", re.IGNORECASE)  # names of variables that hold a key
KEY = re.compile(r"\b(?:sk|pk|gsk|xai|hf|AIza)[-_A-Za-z0-9*]{8,}")


def identity_of(cfg: LLMConfig) -> Any:
    """Return everything except the request that the model's answers depend on, as JSON."""
    params = {k: v for k, v in cfg.params.items() if k != "api_key"}
    # The port of a started server is left out, because it differs every time.
    return [cfg.model, cfg.fallbacks, cfg.api_base, cfg.command, params]


_open: set[RemoteLLM] = set()


class RemoteLLM:
    """Model behind an API; implements `LLM`."""

    def __init__(
        self, cfg: LLMConfig, budget: Budget | None = None, server: ChildServer | None = None
    ) -> None:
        """`server` is the server that `cfg.command` has started; `close` ends it.

        Raises PreflightError if no call could succeed: no key, no such provider.
        """
        self._cfg = cfg
        self._budget = budget or Budget(None)
        self._server = server
        self._base = server.api_base if server else cfg.api_base
        self.concurrency = cfg.concurrency
        self._turns = asyncio.Semaphore(cfg.concurrency)
        self._key = self._find_key()
        self._own = OpenAIServer(cfg, self._base, self._key) if self._is_own() else None
        self._litellm: Any = None
        if not self._own or cfg.fallbacks:
            self._litellm = _import_litellm()
        self.name, self.takes_bounds = cfg.model, False
        self.usage = Usage()
        self._rates: dict[str, Rates] = {}
        limit = self._budget.name if self._budget.is_limited else None
        self._uncounted: set[str] = set()  # models that do not report token counts
        for model in (cfg.model, *cfg.fallbacks):
            self._check(model)
            self._rates[model] = Rates.of(cfg, model, self._info(model), limit)
        self.max_input_tokens = cfg.max_input_tokens or self._known_context()
        _open.add(self)

    @property
    def spent(self) -> float:
        return self._budget.spent

    @property
    def identity(self) -> Any:
        return identity_of(self._cfg)

    def takes_tools(self) -> bool:
        """Return whether tools reach the model: litellm silently drops what it cannot pass on."""
        others = [
            m for m in (self._cfg.model, *self._cfg.fallbacks) if not self._own or m != self.name
        ]
        known = self._litellm.get_supported_openai_params if others else None
        return all("tools" in (known(model=m) or ()) for m in others) if known else True

    async def close(self) -> None:
        """See `LLM`. litellm shares one client among all models; the last one closes it."""
        if self._own:
            await self._own.close()
        _open.discard(self)
        if self._litellm and not any(other._litellm for other in _open):
            await self._litellm.close_litellm_async_clients()
            self._litellm.in_memory_llm_clients_cache.flush_cache()
        if self._server:
            await self._server.close()

    async def ask(
        self,
        messages: list[ChatMessage],
        schema: Schema | None = None,
        tools: Tools = None,
        more: Mapping[str, Any] | None = None,
    ) -> Reply:
        """See `LLM`. `more` are parameters of this call; the config's params override them."""
        names, failures = ToolNames(tools), []
        asked = request_of(schema, names, more or {}, self._cfg.params)
        messages = list(map(names.sent, messages))
        async with self._turns:
            for model in (self._cfg.model, *self._cfg.fallbacks):
                try:
                    return (await self._persist(model, messages, asked)).named(names)
                except LLMError as e:
                    failures.append(str(e))
        raise LLMError("; then ".join(failures))

    async def _persist(
        self, model: str, messages: list[ChatMessage], asked: dict[str, Any]
    ) -> Reply:
        """Call one model until it answers or another attempt is pointless."""
        attempt = 0
        while True:
            try:
                return await self._try(model, messages, asked)
            except BudgetError:
                raise
            except Exception as e:
                wait = _wait_before_retry(e, attempt)
                if wait is None or attempt == self._cfg.retries:
                    times = f" (asked {attempt + 1} times)" if attempt else ""
                    raise LLMError(f"{model}: {self._describe(e)}{times}") from e
            attempt += 1
            self.usage.retries += 1
            await asyncio.sleep(wait)

    async def _try(self, model: str, messages: list[ChatMessage], asked: dict[str, Any]) -> Reply:
        """Call once and record the cost, also of a call without an answer that may be billed."""
        most = self._rates[model].most([messages, asked], self.max_input_tokens)
        reserved, began = await self._budget.reserve(model, most), time.monotonic()
        try:
            ask = self._own.ask if self._own and model == self._cfg.model else self._complete
            answer = await asyncio.wait_for(ask(model, messages, asked), self._cfg.timeout + GRACE)
        except BaseException as e:
            usd = reserved.usd if _may_be_billed(e) else 0.0
            self._budget.settle(reserved, usd, answered=False)
            raise
        finally:
            self.usage.seconds += time.monotonic() - began
        usd = self._price(model, [messages, asked], answer)
        self._budget.settle(reserved, usd)
        self.usage.calls += 1
        return answer.reply(usd)

    async def _complete(
        self, model: str, messages: list[ChatMessage], asked: dict[str, Any]
    ) -> Answer:
        own: dict[str, Any] = {}
        if model == self._cfg.model:
            own = {"api_base": self._base, "api_key": self._key}
        settings = own | asked | self._cfg.params | {"tool_choice": asked.get("tool_choice")}
        if "tools" in asked:  # prevents an import of `mcp`, an optional dependency
            settings["_skip_mcp_handler"] = True
        response = await self._litellm.acompletion(
            model=model,
            messages=messages,
            timeout=self._cfg.timeout,
            num_retries=0,
            max_retries=0,
            drop_params=True,
            **{k: v for k, v in settings.items() if v is not None},
        )
        try:
            choice, usage = response.choices[0], getattr(response, "usage", None)
            message = choice.message.model_dump(exclude_none=True)
        except (AttributeError, IndexError, TypeError):
            raise BadAnswer("expected an answer with choices, got none") from None
        counts = {k: getattr(usage, k, None) for k in ("prompt_tokens", "completion_tokens")}
        given = self._cfg.prices and model == self._cfg.model
        usd = None if given else response._hidden_params.get("response_cost")
        return answer_of(message, choice.finish_reason, counts, usd)

    def _price(self, model: str, asked: Any, answer: Answer) -> float:
        """Return an answer's cost in US dollars. Warn once if the server reports no tokens."""
        rates = self._rates[model]
        if not answer.is_counted and rates.read + rates.written and model not in self._uncounted:
            self._uncounted.add(model)
            self._budget.say(
                f"{model} reports no token counts, or impossible ones: the cost is estimated from "
                "the bytes of prompt and answer, which overestimates it"
            )
        return rates.price(asked, answer)

    def _is_own(self) -> bool:
        return bool(self._base) and self._cfg.model.startswith("openai/")

    def _check(self, model: str) -> None:
        """Raise PreflightError if a model cannot be called at all. Sends no request."""
        if self._own and model == self._cfg.model:
            return
        try:
            self._litellm.get_llm_provider(model)
        except Exception:
            raise PreflightError(
                f"{model!r} is not a model that litellm knows how to call; write provider/model, "
                "as openai/gpt-4.1, anthropic/claude-sonnet-4-5 or ollama_chat/qwen3; a server of "
                "your own is openai/NAME with api_base"
            ) from None
        if model == self._cfg.model and (self._key or self._base):
            return
        if missing := self._litellm.validate_environment(model)["missing_keys"]:
            raise PreflightError(
                f"{model} needs {' and '.join(missing)} in the environment or in .env; or name "
                "the variable that holds the key: api_key_env"
            )

    def _find_key(self) -> str | None:
        """Return the key of `model`, or None if litellm shall use the provider's own variable."""
        cfg = self._cfg
        if cfg.params.get("api_key"):
            return str(cfg.params["api_key"])
        if cfg.api_key_env:
            key = os.environ.get(cfg.api_key_env)
            if not key:
                raise PreflightError(
                    f"{cfg.api_key_env} is not set; put the key for {cfg.model} into the "
                    "environment or into .env"
                )
            return key
        return None

    def _known_context(self) -> int:
        known = [self._info(m).get("max_input_tokens") for m in (self.name, *self._cfg.fallbacks)]
        return min(k or UNKNOWN_CONTEXT for k in known)

    def _info(self, model: str) -> dict[str, Any]:
        if self._own and model == self._cfg.model:
            return {}
        try:
            info = dict(self._litellm.get_model_info(model))
        except Exception:  # litellm raises this for models that it does not know
            return {}
        if info["key"] not in self._litellm.model_cost:
            return info
        # litellm fills in a price of 0 if it knows none per token; remove that again.
        return info | {"input_cost_per_token": None} | self._litellm.model_cost[info["key"]]

    def _describe(self, error: BaseException) -> str:
        """Return an error in one line, with anything that could be a key masked."""
        if isinstance(error, TimeoutError | httpx.TimeoutException) or _status(error) == 408:
            return f"no answer within {self._cfg.timeout:g} s"
        text = str(error).partition("Traceback (most recent call last)")[0]  # litellm's
        text = " ".join(text.encode(errors="replace").decode().split()).removeprefix("litellm.")
        keys = [v for k, v in os.environ.items() if k == self._cfg.api_key_env or NAME.search(k)]
        keys.append(str(self._cfg.params.get("api_key") or ""))
        for key in sorted(keys, key=len, reverse=True):
            if len(key) >= SHORTEST_KEY:
                text = text.replace(key, "***")
        return KEY.sub("***", mask_keys(text))[:500] or type(error).__name__


def _import_litellm() -> ModuleType:
    """Import litellm without fetching its price map and without its messages on stdout."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    os.environ.setdefault("LITELLM_LOG", "CRITICAL")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import litellm

            litellm.ModelResponse()  # pydantic builds its models on first use, and warns then
    except ImportError as e:
        raise PreflightError(f"litellm is not usable here: {e}") from e
    # litellm copies malformed answers before it rejects them, and uses types that pydantic warns
    # about.
    warnings.filterwarnings("ignore", "Pydantic serializer warnings|.*`ReadOnly` qualifier")
    litellm.suppress_debug_info = True
    setattr(litellm, "telemetry", False)  # noqa: B010 (pyright does not know it)
    return litellm


def _wait_before_retry(error: BaseException, attempt: int) -> float | None:
    """Return the seconds to wait before another attempt, or None for no further attempt."""
    status = _status(error)
    if status is not None and status not in RETRYABLE and 300 <= status < 500:
        return None
    if _is_out_of_credit(error):
        return None
    asked = _retry_after(error)
    if asked is not None:
        return asked if asked <= LONGEST_RETRY_AFTER else None
    return min(LONGEST_WAIT, FIRST_WAIT * 2**attempt) * random.uniform(0.5, 1.5)


def _may_be_billed(error: BaseException) -> bool:
    """Return whether a failed call may be billed: any that was sent and not refused."""
    for cause in _causes(error):
        if isinstance(cause, NEVER_SENT):
            return False
        # litellm's own errors have a status even if no server answered.
        if not type(cause).__module__.startswith("litellm.") and (status := _status(cause)):
            return status in TOO_LATE
    return True


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error and its causes."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        yield error
        seen.append(error)
        error = error.__cause__ or error.__context__


def _status(error: BaseException) -> int | None:
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) else None


def _is_out_of_credit(error: BaseException) -> bool:
    return "insufficient_quota" in str(error)


def _retry_after(error: BaseException) -> float | None:
    """Return the Retry-After of the server, given in seconds or as a date."""
    for source in (
        getattr(getattr(error, "response", None), "headers", None),
        getattr(error, "litellm_response_headers", None),
        getattr(error, "headers", None),
    ):
        value = source.get("retry-after") if source else None
        if value is None:
            continue
        try:
            return max(0.0, float(value))
        except ValueError:
            pass
        try:
            return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
        except (ValueError, TypeError, OverflowError):
            continue
    return None
