"""vLLM as the engine: server processes of its own, asked over HTTP in token ids.

Every version of the adapter is served under a name and from a folder that were never used before:
vLLM keys its prefix cache by the name, and serves stale keys and values for one that is used again.
What cannot be served beside the base (all weights, or `sync: merged`) is loaded in its place
between turns, and the cache is cleared.

A server that dies is started again, and what it was asked is asked again: sampling follows from the
seed of a session and the number of the turn, so nothing is lost or sampled twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import torch

from art_cli.config.sections.engine import EngineConfig
from art_cli.config.sections.sampling import SamplingConfig
from art_cli.engines.vllm import server as vllm_server
from art_cli.engines.vllm.machines import LocalMachine, Machine, Started, placements
from art_cli.engines.vllm.server import BASE
from art_cli.engines.vllm.sync_choice import SyncChoice, sync_of
from art_cli.engines.vllm.turn import TurnRequest
from art_cli.envs.base import seed_of
from art_cli.errors import EngineError
from art_cli.models.policy import Policy
from art_cli.system.progress import silent
from art_cli.types import Completion

TURN_TIMEOUT = 1800.0  # seconds, of one turn, the queue at the server included
ADMIN_TIMEOUT = 600.0  # seconds, of loading weights
MAX_RESTARTS = 3  # of one replica; one that dies again and again will go on doing so
LEAST_TOKENS = 2000  # sampled, before `sync: auto` takes a measurement for one
POLL = 0.01  # seconds
ENDING = 10.0  # seconds that a server that failed is given to end
NO_ANSWER = (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, ConnectionError)


@dataclass(eq=False, slots=True)
class _Replica:
    """One server, and what it is busy with."""

    url: str
    place: Machine
    gpus: list[int]
    server: Started | None  # None: someone else's
    log: Path
    life: int = 0  # times that it was started again
    adapters: list[str] = field(default_factory=list)  # that it has loaded, the newest last
    is_merged: bool = False  # an adapter is in what it serves as its base
    outstanding: int = 0  # tokens: prompts, and what may be sampled behind them
    turns: Counter[str] = field(default_factory=Counter)  # in flight, by the name they asked for
    reviving: asyncio.Lock = field(default_factory=asyncio.Lock)
    replacing: asyncio.Event | None = None  # set once its base is another: turns wait for that

    @property
    def served(self) -> str:
        """The name of the newest weights."""
        return self.adapters[-1] if self.adapters else BASE


@dataclass(eq=False, slots=True)
class _Session:
    """One episode: its turns stay with a replica, whose prefix cache knows them."""

    engine: VLLMEngine
    seed: int
    turns: int = 0
    replica: _Replica | None = None

    async def generate(
        self,
        ids: list[int],
        *,
        max_tokens: int | None = None,
        stop: tuple[str, ...] = (),
        grammar: str | None = None,
        top_logprobs: int = 0,
    ) -> Completion:
        if grammar is not None:
            await self.engine.grammars.compile(grammar)
        self.turns += 1
        request = TurnRequest(
            ids=ids,
            seed=seed_of(self.seed, "turn", self.turns) % 2**63,
            max_tokens=self.engine._room_behind(len(ids), max_tokens),
            stop=stop,
            grammar=grammar,
            top_logprobs=top_logprobs,
        )
        return await self.engine._turn(self, request)

    def expect(self, coming: bool) -> None: ...  # no step waits for anyone
    def close(self) -> None: ...  # nothing is held for it


class VLLMEngine:
    """See the head of this file; implements Engine."""

    def __init__(
        self,
        policy: Policy,
        cfg: EngineConfig,
        sampling: SamplingConfig,
        stop_ids: frozenset[int],
        replicas: list[_Replica],
        say: Callable[[str], None],
    ) -> None:
        self.policy_version, self.cached_tokens = 0, 128  # of a hybrid model, whose blocks are long
        self.grammars = policy.grammars
        self._policy = policy
        self._cfg = cfg
        self._sampling = sampling
        self._stop_ids = sorted(stop_ids)
        self._replicas = replicas
        self._places = list({id(r.place): r.place for r in replicas}.values())
        self._say = say
        self._weights: Path | None = None  # the newest, as they were written
        self._folder = vllm_server.scratch(vllm_server.quick_disk())
        self._versions: dict[str, int] = {}  # of adapters, by name
        self._choice = SyncChoice(sync_of(policy, cfg.sync))
        self._asleep = False

    @classmethod
    async def start(
        cls,
        policy: Policy,
        cfg: EngineConfig,
        sampling: SamplingConfig,
        stop_ids: frozenset[int],
        *,
        logs: Path,
        say: Callable[[str], None] = silent,
    ) -> VLLMEngine:
        """Start the servers, which print to `logs`/engine-N.log, or use the one at `cfg.url`.

        Raises PreflightError where one does not start, UsageError where the model does not go with
        the settings.
        """
        if cfg.url is not None:
            found = _Replica(vllm_server.api_root(cfg.url), LocalMachine(), [], None, logs)
            return cls(policy, cfg, sampling, stop_ids, [found], say)
        vllm_server.check_model(cfg, policy)
        logs.mkdir(parents=True, exist_ok=True)
        replicas = [
            _Replica("", place, gpus, None, logs / f"engine-{i}.log")
            for i, (place, gpus) in enumerate(placements(cfg))
        ]
        engine = cls(policy, cfg, sampling, stop_ids, replicas, say)
        try:
            if (base := Path(policy.source)).is_dir():
                await asyncio.gather(*(place.put(base) for place in engine._places))
            jobs = [engine._start(replica) for replica in replicas]
            for failure in await asyncio.gather(*jobs, return_exceptions=True):
                if isinstance(failure, BaseException):
                    raise failure
        except BaseException:
            await engine.close()
            raise
        return engine

    async def _start(self, replica: _Replica) -> None:
        options = vllm_server.options_of(self._policy, self._cfg)
        options["model"] = replica.place.path(Path(self._policy.source))
        replica.server = await replica.place.start(options, replica.gpus, replica.log)
        replica.url = replica.server.url

    def open(self, seed: int, *, awaited: bool = True) -> _Session:
        return _Session(self, seed)

    async def close(self) -> None:
        await asyncio.gather(*(r.server.close() for r in self._replicas if r.server))
        if self._cfg.url:  # leave someone else's as it was
            [replica] = self._replicas
            with contextlib.suppress(EngineError, *NO_ANSWER):
                await self._drop_adapters(replica, list(replica.adapters))
        shutil.rmtree(self._folder, ignore_errors=True)

    # -------------------------------------------------------------- turns

    def _room_behind(self, prompt: int, max_tokens: int | None) -> int:
        most = min(max_tokens or self._sampling.max_tokens, self._sampling.max_tokens)
        return min(most, self._cfg.max_model_len - prompt)

    async def _turn(self, session: _Session, request: TurnRequest) -> Completion:
        params = request.params(self._sampling, self._stop_ids)
        tokens = len(request.ids) + request.max_tokens
        while True:
            replica = session.replica or min(self._replicas, key=lambda r: r.outstanding)
            while replica.replacing:
                await replica.replacing.wait()
            session.replica, life, name = replica, replica.life, replica.served
            body = {"model": name, "token_ids": request.ids, "sampling_params": params}
            replica.outstanding += tokens
            replica.turns[name] += 1
            began = time.monotonic()
            try:
                answer = await self._post(replica, "/inference/v1/generate", body, TURN_TIMEOUT)
            except NO_ANSWER as e:
                answer, why = None, e
            finally:
                replica.outstanding -= tokens
                replica.turns[name] -= 1
            if answer:
                [choice] = answer["choices"]
                self._choice.sampled(len(choice["token_ids"]), began)
                version = self._version_in(answer, choice, name)
                return request.completion(choice, version, self.grammars)
            await self._revive(replica, life, why)

    def _version_in(self, answer: dict[str, Any], choice: dict[str, Any], name: str) -> int:
        """Return a turn's version: it follows from the adapter's name, or else from a label."""
        labels = {span["version"] for span in choice["weight_versions"]}
        version = self._versions[name] if name != BASE else int(labels.pop())
        if answer["model"] != name or (name == BASE and labels):
            raise EngineError(f"vLLM answered with other weights than {name}: {answer}"[:1000])
        return version

    async def _post(
        self, replica: _Replica, path: str, body: Any = None, timeout: float = ADMIN_TIMEOUT
    ) -> Any:
        """Raise EngineError where the server refuses or is slow, NO_ANSWER where it is gone."""
        limit, url = aiohttp.ClientTimeout(total=timeout), replica.url + path
        try:
            # A client for each call: one that is kept belongs to one event loop, and to a server
            # that may die; a connection to this machine costs a fraction of a token.
            async with (
                aiohttp.ClientSession(timeout=limit) as client,
                client.post(url, json=body, headers=replica.place.headers) as response,
            ):
                text = await response.text()
                if response.status < 400:
                    return json.loads(text) if text[:1] in ("{", "[") else text
        except TimeoutError:
            raise EngineError(f"vLLM did not answer POST {path} within {timeout:g} s") from None
        if response.status >= 500 and await _is_ending(replica):
            raise ConnectionError(text)
        raise EngineError(f"vLLM refused POST {path} with {response.status}: {text[:1000]}")

    async def _revive(self, replica: _Replica, life: int, why: Exception) -> None:
        """Start a dead server again, with the weights it had, unless someone else just has."""
        async with replica.reviving:
            if replica.life != life:
                return
            if replica.server is None:
                raise EngineError(f"the vLLM server at {replica.url} does not answer: {why}")
            if not await replica.server.ends_within(ENDING):
                raise EngineError(f"vLLM does not answer, but is still there: {why}")
            code, said = replica.server.exit_code, vllm_server.last_errors(replica.log)
            if replica.life >= MAX_RESTARTS:
                raise EngineError(
                    f"vLLM ended {MAX_RESTARTS + 1} times, now with exit code {code}. "
                    f"{replica.log} has all it said; its last errors:\n{said}"
                )
            self._say(f"vLLM ended with exit code {code}; starting it again")
            await replica.server.close()
            await self._start(replica)
            replica.life = life + 1
            replica.adapters, replica.is_merged = [], False
            try:
                await self._deliver(replica)
            except NO_ANSWER as e:
                raise EngineError(f"vLLM ended while it was given its weights: {e!r}") from e

    # -------------------------------------------------------------- weights

    async def sync(self, version: int) -> None:
        if told := self._choice.next(LEAST_TOKENS):
            self._say(told)
        began, old = time.monotonic(), self._weights
        # Never used before, by whomever: the prefix cache goes by the name.
        name = f"{self._choice.way}-of-version-{version}-{secrets.token_hex(8)}"
        weights = self._folder / name
        weights.mkdir()
        if self._choice.way == "adapter":
            self._policy.save_weights(weights)
            self._versions[name] = version
        else:
            self._policy.save_merged(weights)
        await asyncio.gather(*(place.put(weights) for place in self._places))
        # A server that is started again meanwhile gets the old ones, which are still everywhere.
        self._weights, self.policy_version = weights, version
        await asyncio.gather(*(self._deliver_or_revive(r) for r in self._replicas))
        self._asleep = False
        if old:
            await asyncio.gather(*(place.drop(old) for place in self._places))
            shutil.rmtree(old)
        self._choice.synced(time.monotonic() - began)

    async def rest(self) -> None:
        """See Engine. Moves what vLLM has on the trainer's GPU to main memory."""
        if not self._cfg.shares_gpu or self._cfg.url or not torch.cuda.is_available():
            return
        before, _ = torch.cuda.mem_get_info()
        level = 1 if self._choice.way == "adapter" else 2  # 2: the weights are lost
        await asyncio.gather(*(self._post(r, f"/sleep?level={level}") for r in self._replicas))
        self._asleep = True
        after, total = torch.cuda.mem_get_info()
        if after - before < 0.2 * total and after < 0.3 * total:
            raise EngineError(
                f"vLLM sleeps, but gave only {(after - before) / 2**30:.1f} GiB back; "
                "give it a GPU of its own: engine.gpus=[1]"
            )

    async def _deliver_or_revive(self, replica: _Replica) -> None:
        life = replica.life
        try:
            await self._deliver(replica)
        except NO_ANSWER as e:
            await self._revive(replica, life, e)

    async def _deliver(self, replica: _Replica) -> None:
        """Have one server take the newest weights."""
        assert self._weights
        if self._asleep:
            await self._post(replica, "/wake_up")
        if self._weights.name in self._versions:
            await self._add_adapter(replica, self._weights)
        else:
            await self._replace_base(replica, self._weights)
            replica.is_merged = True

    async def _add_adapter(self, replica: _Replica, folder: Path) -> None:
        """Load an adapter, beside those that turns in flight still need."""
        if replica.is_merged:
            await self._replace_base(replica, Path(self._policy.source))
            replica.is_merged = False
        body = vllm_server.load_request(self._policy, folder.name, replica.place.path(folder))
        await self._post(replica, "/v1/load_lora_adapter", body)
        replica.adapters.append(folder.name)
        await self._drop_adapters(
            replica, [n for n in replica.adapters[:-1] if not replica.turns[n]]
        )

    async def _drop_adapters(self, replica: _Replica, names: list[str]) -> None:
        for name in names:
            await self._post(replica, "/v1/unload_lora_adapter", {"lora_name": name})
            replica.adapters.remove(name)

    async def _replace_base(self, replica: _Replica, folder: Path) -> None:
        """Load other weights once the turns in flight have ended; later ones wait for it."""
        replica.replacing = done = asyncio.Event()
        try:
            while replica.turns.total():
                await asyncio.sleep(POLL)
            await self._drop_adapters(replica, list(replica.adapters))
            reload = {"method": "reload_all_weights", "args": [replica.place.path(folder)]}
            await self._post(replica, "/collective_rpc", reload)
            await self._post(replica, "/reset_prefix_cache")
            label = {"new_version": str(self.policy_version)}
            await self._post(replica, "/update_weight_version", label)
        finally:
            replica.replacing = None
            done.set()


async def _is_ending(replica: _Replica) -> bool:
    """Return whether the server's process is gone, or goes within seconds."""
    return replica.server is not None and await replica.server.ends_within(ENDING)
