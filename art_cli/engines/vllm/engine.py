"""vLLM as the engine: separate server processes, which exchange token ids over HTTP.

Every version of the adapter gets a new name and folder. vLLM keys its prefix cache by the name, and
would serve stale keys and values if a name were reused. Weights that cannot be served beside the
base (all weights, or `sync: merged`) replace the base between turns, and the cache is cleared.

A server that dies is restarted, and its pending requests are repeated. Sampling is determined by
the seed of a session and the number of the turn, so nothing is lost or sampled twice.
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

TURN_TIMEOUT = 1800.0  # seconds per turn, including the server's queue
ADMIN_TIMEOUT = 600.0  # seconds, for loading weights
MAX_RESTARTS = 3  # per replica; then the run fails
LEAST_TOKENS = 2000  # sampled tokens that `sync: auto` needs for a measurement
POLL = 0.01  # seconds
ENDING = 10.0  # seconds for a failing server to end
NO_ANSWER = (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, ConnectionError)


@dataclass(eq=False, slots=True)
class _Replica:
    """One server, with its state and load."""

    url: str
    place: Machine
    gpus: list[int]
    server: Started | None  # None: started by the user
    log: Path
    life: int = 0  # number of restarts
    adapters: list[str] = field(default_factory=list)  # names of loaded adapters, the newest last
    is_merged: bool = False  # its base has an adapter merged into it
    outstanding: int = 0  # tokens in flight: prompts plus max_tokens
    turns: Counter[str] = field(default_factory=Counter)  # turns in flight, by name of the weights
    reviving: asyncio.Lock = field(default_factory=asyncio.Lock)
    replacing: asyncio.Event | None = None  # while its base is being replaced: turns wait for it

    @property
    def served(self) -> str:
        """The name of the newest weights."""
        return self.adapters[-1] if self.adapters else BASE


@dataclass(eq=False, slots=True)
class _Session:
    """One episode. Its turns stay with a replica, whose prefix cache has its tokens."""

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

    def expect(self, coming: bool) -> None: ...  # steps do not wait for sessions
    def close(self) -> None: ...  # it has no resources


class VLLMEngine:
    """Engine on vLLM servers, as described for this module; implements `Engine`."""

    def __init__(
        self,
        policy: Policy,
        cfg: EngineConfig,
        sampling: SamplingConfig,
        stop_ids: frozenset[int],
        replicas: list[_Replica],
        say: Callable[[str], None],
    ) -> None:
        self.policy_version, self.cached_tokens = 0, 128  # block size of hybrid models, the longest
        self.grammars = policy.grammars
        self._policy = policy
        self._cfg = cfg
        self._sampling = sampling
        self._stop_ids = sorted(stop_ids)
        self._replicas = replicas
        self._places = list({id(r.place): r.place for r in replicas}.values())
        self._say = say
        self._weights: Path | None = None  # folder with the newest weights
        self._folder = vllm_server.scratch(vllm_server.quick_disk())
        self._versions: dict[str, int] = {}  # version of each adapter, by name
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
        """Start the servers, which log to `logs`/engine-N.log, or use the one at `cfg.url`.

        Raises PreflightError if a server does not start, UsageError if the model does not fit the
        settings.
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
        if self._cfg.url:  # leave the user's server as it was
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
        """Return the version of a turn, from the adapter's name or the label of the weights."""
        labels = {span["version"] for span in choice["weight_versions"]}
        version = self._versions[name] if name != BASE else int(labels.pop())
        if answer["model"] != name or (name == BASE and labels):
            raise EngineError(f"vLLM answered with other weights than {name}: {answer}"[:1000])
        return version

    async def _post(
        self, replica: _Replica, path: str, body: Any = None, timeout: float = ADMIN_TIMEOUT
    ) -> Any:
        """Raise EngineError if the server refuses or is slow, NO_ANSWER if it is gone."""
        limit, url = aiohttp.ClientTimeout(total=timeout), replica.url + path
        try:
            # A client for each call: a shared one would be bound to one event loop, and to a server
            # that may die. A new connection to this machine costs a fraction of a token.
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
        """Restart a dead server with its weights, unless another call has just done so."""
        async with replica.reviving:
            if replica.life != life:
                return
            if replica.server is None:
                raise EngineError(f"the vLLM server at {replica.url} does not answer: {why}")
            if not await replica.server.ends_within(ENDING):
                raise EngineError(f"vLLM does not answer, but its process still runs: {why}")
            code, said = replica.server.exit_code, vllm_server.last_errors(replica.log)
            if replica.life >= MAX_RESTARTS:
                raise EngineError(
                    f"vLLM ended {MAX_RESTARTS + 1} times, now with exit code {code}. "
                    f"{replica.log} has its full output; the last errors:\n{said}"
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
        # A name that was never used before, because the prefix cache is keyed by it.
        name = f"{self._choice.way}-of-version-{version}-{secrets.token_hex(8)}"
        weights = self._folder / name
        weights.mkdir()
        if self._choice.way == "adapter":
            self._policy.save_weights(weights)
            self._versions[name] = version
        else:
            self._policy.save_merged(weights)
        await asyncio.gather(*(place.put(weights) for place in self._places))
        # A server that restarts meanwhile loads the old weights, which all machines still have.
        self._weights, self.policy_version = weights, version
        await asyncio.gather(*(self._deliver_or_revive(r) for r in self._replicas))
        self._asleep = False
        if old:
            await asyncio.gather(*(place.drop(old) for place in self._places))
            shutil.rmtree(old)
        self._choice.synced(time.monotonic() - began)

    async def rest(self) -> None:
        """See `Engine`. Moves vLLM's memory from the trainer's GPU to main memory."""
        if not self._cfg.shares_gpu or self._cfg.url or not torch.cuda.is_available():
            return
        before, _ = torch.cuda.mem_get_info()
        level = 1 if self._choice.way == "adapter" else 2  # level 2 discards the weights
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
        """Load the newest weights into one server."""
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
        """Replace the base after the turns in flight have ended; later turns wait for it."""
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
    """Return whether the server's process has ended, or ends within seconds."""
    return replica.server is not None and await replica.server.ends_within(ENDING)
