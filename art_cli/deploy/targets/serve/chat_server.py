"""A model folder as a server for OpenAI's and Anthropic's clients, on the embedded engine: no GPU
and no vLLM needed.

    python -m art_cli.deploy.targets.serve.chat_server FOLDER NAME PORT MAX_MODEL_LEN MAX_TOKENS

The variables ART_SERVE_KEY and ART_SERVE_HOST say what callers have to show, and where it listens.
Unlike the gateway, which trains, it samples as a request says.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import sys
import traceback
from collections import OrderedDict
from dataclasses import replace

import torch
from aiohttp import web

from art_cli.chat.render import Renderer
from art_cli.config.sections.engine import EngineConfig
from art_cli.config.sections.model import ModelConfig
from art_cli.config.sections.sampling import LEAST, SamplingConfig
from art_cli.deploy.targets.serve.access import Access, checked
from art_cli.engines.base import Engine
from art_cli.engines.embedded.engine import TransformersEngine
from art_cli.errors import ConstraintError, EngineError
from art_cli.models.loading import load_policy
from art_cli.models.policy import Policy
from art_cli.rollout.gateway.apis.endpoints import Endpoints
from art_cli.rollout.gateway.asked import Answered, Asked, RequestError
from art_cli.rollout.gateway.body import MAX_BODY
from art_cli.rollout.gateway.constraint import grammar_of, hold_of
from art_cli.rollout.gateway.exchange import answer, begin, count_tokens, read_in
from art_cli.rollout.gateway.served import Served
from art_cli.types import Completion, Message

PROBE: Message = {"role": "user", "content": "hello"}
MAX_ENGINES = 8  # ways of sampling at once; each has a cache of its own


class ChatServer:
    """Serves one policy under one name."""

    def __init__(self, policy: Policy, name: str, cfg: EngineConfig, usual: SamplingConfig) -> None:
        self._policy = policy
        self._name = name
        self._cfg = cfg
        self._usual = usual
        self._renderer = Renderer(policy.tokenizer, None, policy.eos_token_ids)
        self._engines: OrderedDict[SamplingConfig, Served] = OrderedDict()
        self._probe = Asked(messages=[PROBE], size=0, tools=[], limit=1)
        self._endpoints = Endpoints()
        self._failed: str | None = None  # why the last request got no answer

    def app(self, access: Access) -> web.Application:
        """Serve the endpoints of the gateway; and /health, which needs no key."""
        app = web.Application(client_max_size=MAX_BODY, middlewares=[checked(access)])
        app.router.add_get("/health", self._health)
        app.router.add_route("*", "/{path:.*}", self._reply)
        return app

    @property
    def models(self) -> list[str]:
        """See Responder."""
        return [self._name]

    @property
    def max_model_len(self) -> int:
        """See Responder."""
        return self._cfg.max_model_len

    async def complete(self, asked: Asked) -> list[Answered]:
        """See Responder. Whatever fails: other requests go on, and so does the server."""
        try:
            answered = await self._complete(asked)
        except RequestError:
            raise
        except EngineError as e:  # it can never answer again: the next request gets a new one
            self._engines.clear()
            self._failed = str(e)
            raise RequestError(503, str(e), "engine") from e
        except Exception as e:
            traceback.print_exc()
            raise RequestError(500, f"the server failed: {type(e).__name__}", "server") from e
        self._failed = None
        return answered

    async def count(self, asked: Asked) -> int:
        """See Responder."""
        renderer = await self._served(self._usual).renderer(asked.tools, asked.size)
        return await count_tokens(renderer, asked, self.max_model_len)

    async def _reply(self, request: web.Request) -> web.StreamResponse:
        return await self._endpoints.answer(request, request.match_info["path"], self)

    async def _health(self, request: web.Request) -> web.StreamResponse:
        """Answered 200 where the engine works; after a failure, a request of its own finds out."""
        if self._failed:
            with contextlib.suppress(RequestError):
                await self.complete(self._probe)
        body = {"status": "failed", "error": self._failed} if self._failed else {"status": "ok"}
        return web.json_response(body, status=503 if self._failed else 200)

    async def _complete(self, asked: Asked) -> list[Answered]:
        served = self._served(sampling_of(asked, self._usual))
        renderer = await served.renderer(asked.tools, asked.size)
        hold = await hold_of(asked, served.engine)
        talk = begin(renderer, asked)
        num_prompt = await read_in(talk, asked.messages, asked, served.max_model_len)
        grammar = grammar_of(talk, renderer, asked, hold, served.engine)
        seed = random.getrandbits(31) if asked.seed is None else asked.seed
        talks = [talk, *(talk.forked() for _ in range(asked.n - 1))]
        sampled = await asyncio.gather(
            *(_sample(served.engine, t.ids, asked, grammar, seed + n) for n, t in enumerate(talks))
        )
        return [
            answer(t, renderer, completion, asked, num_prompt)
            for t, completion in zip(talks, sampled, strict=True)
        ]

    def _served(self, sampling: SamplingConfig) -> Served:
        """An engine that samples like this: the embedded one has a way of sampling for all."""
        if sampling not in self._engines:
            stop_ids = self._renderer.stop_ids
            engine = TransformersEngine(
                self._policy, self._cfg, sampling, stop_ids, raw_logprobs=True
            )
            make = self._renderer.offering
            self._engines[sampling] = Served(engine, make, self._cfg.max_model_len)
        self._engines.move_to_end(sampling)
        if len(self._engines) > MAX_ENGINES:
            self._engines.popitem(last=False)  # it goes once its last request is answered
        return self._engines[sampling]


async def _sample(
    engine: Engine, ids: list[int], asked: Asked, grammar: str | None, seed: int
) -> Completion:
    session = engine.open(seed, awaited=False)
    try:
        return await session.generate(
            list(ids),
            max_tokens=asked.limit,
            stop=asked.stops,
            top_logprobs=asked.top_logprobs,
            grammar=grammar,
        )
    except ConstraintError as e:
        raise RequestError(400, str(e)) from None
    finally:
        session.close()


def sampling_of(asked: Asked, usual: SamplingConfig) -> SamplingConfig:
    """Return `usual` with what a request sets.

    Values below LEAST mean the likeliest token, as 0 does: the division by a smaller temperature
    would overflow.
    """
    temperature = usual.temperature if asked.temperature is None else asked.temperature
    top_p = usual.top_p if asked.top_p is None else asked.top_p
    if temperature < LEAST or top_p < LEAST:
        return replace(usual, temperature=1.0, top_p=1.0, top_k=1)
    return replace(usual, temperature=temperature, top_p=top_p)


async def serve(server: ChatServer, access: Access, port: int) -> None:
    """Serve until the process is asked to end."""
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    runner = web.AppRunner(
        server.app(access),
        access_log=None,
        handler_cancellation=True,
        auto_decompress=False,
        shutdown_timeout=1.0,  # for answers that are on their way
    )
    await runner.setup()
    await web.TCPSite(runner, access.host, port).start()
    await ended.wait()
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(runner.cleanup(), 5)


def main() -> None:
    """Run the server with the arguments that the head of this file names."""
    folder, name, port, max_model_len, max_tokens = sys.argv[1:]
    dtype = "bfloat16" if torch.cuda.is_available() else "auto"
    policy = load_policy(ModelConfig(base=folder, adapter=None, dtype=dtype), (), 0)
    server = ChatServer(
        policy,
        name,
        EngineConfig(max_model_len=int(max_model_len)),
        SamplingConfig(max_tokens=int(max_tokens)),
    )
    asyncio.run(serve(server, Access.from_environment(), int(port)))


if __name__ == "__main__":
    main()
