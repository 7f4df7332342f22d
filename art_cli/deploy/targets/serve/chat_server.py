"""A model folder as an OpenAI-compatible server, on the embedded engine: no GPU and no vLLM needed.

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

from art_cli.config.schema import EngineConfig, ModelConfig, SamplingConfig
from art_cli.deploy.targets.serve.access import Access, checked
from art_cli.engines.embedded.engine import TransformersEngine
from art_cli.errors import EngineError
from art_cli.models.loading import load_policy
from art_cli.models.policy import Policy
from art_cli.models.render import Conversation, Renderer
from art_cli.rollout.gateway.apis.chat import ChatApi
from art_cli.rollout.gateway.apis.serving import serve as serve_request
from art_cli.rollout.gateway.asked import Answered, Asked, RequestError
from art_cli.rollout.gateway.body import MAX_BODY
from art_cli.rollout.gateway.exchange import answer, read_in
from art_cli.rollout.gateway.hosted_episode import Served
from art_cli.types import Message

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
        self._probe = Asked(messages=[PROBE], size=0, tools=[], limit=1, model=name)
        self._failed: str | None = None  # why the last request got no answer

    def app(self, access: Access) -> web.Application:
        """Serve /v1/models and /v1/chat/completions; and /health, which needs no key."""
        app = web.Application(client_max_size=MAX_BODY, middlewares=[checked(access)])
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/health", self._health)
        app.router.add_post("/v1/chat/completions", self._chat)
        return app

    async def _models(self, request: web.Request) -> web.StreamResponse:
        model = {"id": self._name, "object": "model", "created": 0, "owned_by": "art"}
        return web.json_response({"object": "list", "data": [model]})

    async def _health(self, request: web.Request) -> web.StreamResponse:
        """Answered 200 where the engine works; after a failure, a request of its own finds out."""
        if self._failed:
            with contextlib.suppress(RequestError):
                await self._answer(self._probe)
        body = {"status": "failed", "error": self._failed} if self._failed else {"status": "ok"}
        return web.json_response(body, status=503 if self._failed else 200)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await serve_request(ChatApi(), request, self._answer)

    async def _answer(self, asked: Asked) -> list[Answered]:
        """Raises RequestError, whatever fails: other requests go on, and so does the server."""
        if asked.model != self._name:
            raise RequestError(404, f"there is no model {asked.model}; it is {self._name}")
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

    async def _complete(self, asked: Asked) -> list[Answered]:
        served = self._served(sampling_of(asked, self._usual))
        renderer = await served.renderer(asked.tools, asked.size)
        talk = Conversation(renderer)
        num_prompt = await read_in(talk, asked.messages, asked, served.max_model_len)
        seed = random.getrandbits(31) if asked.seed is None else asked.seed
        session = served.engine.open(seed, awaited=False)
        try:
            sampled = await session.generate(talk.ids, max_tokens=asked.limit, stop=asked.stops)
        finally:
            session.close()
        return [answer(talk, renderer, sampled, asked, num_prompt)]

    def _served(self, sampling: SamplingConfig) -> Served:
        """An engine that samples like this: the embedded one has a way of sampling for all."""
        if sampling not in self._engines:
            stop_ids = self._renderer.stop_ids
            engine = TransformersEngine(self._policy, self._cfg, sampling, stop_ids)
            make = self._renderer.offering
            self._engines[sampling] = Served(engine, make, self._cfg.max_model_len)
        self._engines.move_to_end(sampling)
        if len(self._engines) > MAX_ENGINES:
            self._engines.popitem(last=False)  # it goes once its last request is answered
        return self._engines[sampling]


def sampling_of(asked: Asked, usual: SamplingConfig) -> SamplingConfig:
    """Return `usual` with what a request sets; temperature 0 is the likeliest token."""
    temperature = usual.temperature if asked.temperature is None else asked.temperature
    top_p = usual.top_p if asked.top_p is None else asked.top_p
    if temperature == 0 or top_p == 0:
        return replace(usual, temperature=1.0, top_p=1.0, top_k=1)
    return replace(usual, temperature=temperature, top_p=top_p)


async def serve(server: ChatServer, access: Access, port: int) -> None:
    """Serve until the process is asked to end."""
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    runner = web.AppRunner(
        server.app(access), access_log=None, handler_cancellation=True, auto_decompress=False
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
