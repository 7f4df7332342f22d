"""A model folder as an OpenAI-compatible server, on the embedded engine: no GPU and no vLLM needed.

    python -m art_cli.deploy.chat_server FOLDER NAME PORT MAX_MODEL_LEN MAX_TOKENS

Unlike the gateway, which trains, it samples as a request says.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import sys
import time
from collections import OrderedDict
from dataclasses import replace
from functools import partial
from typing import Annotated

import torch
from aiohttp import web
from pydantic import Field

from art_cli.chat import write_turn
from art_cli.config.schema import EngineConfig, ModelConfig, SamplingConfig
from art_cli.engines.transformers import TransformersEngine
from art_cli.errors import UsageError
from art_cli.gateway.answer import Answer, completion, stream
from art_cli.gateway.hosted import Served, cut
from art_cli.gateway.request import ChatRequest, RequestError
from art_cli.policy import Policy, load_policy
from art_cli.render import Conversation, Renderer

MAX_BODY = 32 * 2**20  # bytes
MAX_ENGINES = 8  # ways of sampling at once; each has a cache of its own


class ServedRequest(ChatRequest):
    """A request whose sampling settings have an effect."""

    top_p: Annotated[float, Field(gt=0, le=1)] | None = None

    def sampling(self, usual: SamplingConfig) -> SamplingConfig:
        """`usual`, but for what the request says; temperature 0 is the likeliest token."""
        temperature = usual.temperature if self.temperature is None else self.temperature
        top_p = usual.top_p if self.top_p is None else self.top_p
        if temperature == 0:
            return replace(usual, temperature=1.0, top_p=1.0, top_k=1)
        return replace(usual, temperature=temperature, top_p=top_p)


class ChatServer:
    """Serves one policy under one name."""

    def __init__(self, policy: Policy, name: str, cfg: EngineConfig, usual: SamplingConfig) -> None:
        self._policy = policy
        self._name = name
        self._cfg = cfg
        self._usual = usual
        self._stop_ids = Renderer(policy.tokenizer, None, policy.eos_token_ids).stop_ids
        self._engines: OrderedDict[SamplingConfig, Served] = OrderedDict()

    def app(self) -> web.Application:
        """/v1/models and /v1/chat/completions."""
        app = web.Application(client_max_size=MAX_BODY)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/health", self._models)
        app.router.add_post("/v1/chat/completions", self._chat)
        return app

    async def _models(self, request: web.Request) -> web.StreamResponse:
        model = {"id": self._name, "object": "model", "created": 0, "owned_by": "art"}
        return web.json_response({"object": "list", "data": [model]})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        try:
            asked = ServedRequest.read(await request.read())
            if asked.model != self._name:
                raise RequestError(404, f"there is no model {asked.model}; it is {self._name}")
            head = {"id": f"chatcmpl-{random.getrandbits(64):x}", "created": int(time.time())}
            head["model"] = self._name
            if asked.stream:
                return await stream(request, asked, head, self._complete(asked))
            return web.json_response(head | completion(await self._complete(asked), asked))
        except RequestError as e:
            return web.json_response(e.body(), status=e.status)

    async def _complete(self, asked: ServedRequest) -> Answer:
        served = await self._served(asked.sampling(self._usual))
        tools = asked.offered_tools()
        renderer = served.renderer(tools)
        talk = Conversation(renderer)
        try:
            talk.add_messages(asked.conversation(), asked.opening())
        except UsageError as e:
            raise RequestError(400, str(e)) from None
        num_prompt = len(talk.ids)
        if num_prompt >= served.max_model_len:
            raise RequestError(
                400,
                f"the messages are {num_prompt} tokens, and there is room for "
                f"{served.max_model_len}",
                "context_length_exceeded",
            )
        seed = random.getrandbits(31) if asked.seed is None else asked.seed
        session, stop = served.engine.open(seed, awaited=False), tuple(asked.stop or ())
        try:
            sampled = await session.generate(talk.ids, max_tokens=asked.limit(), stop=stop)
        finally:
            session.close()
        message = write_turn(cut(talk.add_completion(sampled), stop), with_tools=bool(tools))
        return Answer(
            message=message,
            finish_reason="tool_calls" if message.get("tool_calls") else sampled.finish_reason,
            completion=sampled,
            tokens=[renderer.decode([i]) for i in sampled.token_ids] if asked.logprobs else [],
            num_prompt=num_prompt,
        )

    async def _served(self, sampling: SamplingConfig) -> Served:
        """An engine that samples like this: the embedded one has a way of sampling for all."""
        if sampling not in self._engines:
            engine = TransformersEngine(self._policy, self._cfg, sampling, self._stop_ids)
            make = partial(
                Renderer, self._policy.tokenizer, eos_token_ids=self._policy.eos_token_ids
            )
            self._engines[sampling] = Served(engine, make, self._cfg.max_model_len)
        self._engines.move_to_end(sampling)
        if len(self._engines) > MAX_ENGINES:
            _, oldest = self._engines.popitem(last=False)
            await oldest.engine.close()
        return self._engines[sampling]


async def serve(server: ChatServer, port: int) -> None:
    """Answer until the process is asked to end."""
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    runner = web.AppRunner(server.app(), access_log=None, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await ended.wait()
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(runner.cleanup(), 5)


def main() -> None:
    """The arguments are those of the head of this file."""
    folder, name, port, max_model_len, max_tokens = sys.argv[1:]
    dtype = "bfloat16" if torch.cuda.is_available() else "auto"
    policy = load_policy(ModelConfig(base=folder, adapter=None, dtype=dtype), (), 0)
    server = ChatServer(
        policy,
        name,
        EngineConfig(max_model_len=int(max_model_len)),
        SamplingConfig(max_tokens=int(max_tokens)),
    )
    asyncio.run(serve(server, int(port)))


if __name__ == "__main__":
    main()
