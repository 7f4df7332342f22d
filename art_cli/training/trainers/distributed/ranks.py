"""One update computed by several ranks.

Rank 0 is the process of the run. It has the engine, judge, trackers and checkpoints, and the whole
policy, which the engine samples from. Every rank, rank 0 included, also holds a shard of the policy
and an ordinary `GRPOTrainer` for that shard. Rank 0 distributes the microbatches of a step.
Afterwards it copies the new weights from the shards into its whole policy. Its files are the same
as those of a run in a single process.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import FileStore, PrefixStore, Store

from art_cli.chat.grammar.grammars import Grammars, Vocabulary
from art_cli.config.sections.engine import MAX_MODEL_LEN
from art_cli.config.sections.model import AdapterConfig
from art_cli.config.sections.sampling import SamplingConfig
from art_cli.config.sections.train import TrainConfig
from art_cli.errors import TrainerError
from art_cli.models.policy import Policy
from art_cli.models.saved_weights import load_state
from art_cli.system.progress import silent
from art_cli.training.algorithm.packing import TrainSequence, num_packed, partition
from art_cli.training.trainers.base import Update, take_updates
from art_cli.training.trainers.budget import TokenBudget
from art_cli.training.trainers.distributed.launch import (
    COLLECTIVE_TIMEOUT,
    Crew,
    LocalCrew,
    WorkerDied,
    check_world_size,
    commands_in,
    commands_of_parent,
    end_with,
    join,
    launched,
    ready,
)
from art_cli.training.trainers.distributed.messages import (
    plain_sequence,
    plain_stats,
    receive,
    send,
    sequence_of,
    share,
    stats_of,
)
from art_cli.training.trainers.distributed.sharded import Blueprint, Shard, gather, scatter
from art_cli.training.trainers.grpo import GRPOTrainer, NotFiniteError, Part
from art_cli.training.trainers.sequences import training_sequences
from art_cli.training.trainers.stats import Stats
from art_cli.types import TrajectoryGroup

LESS = "Go on with --resume and half of train.microbatch_tokens, or with more train.num_processes"
SMALL = ("form", "update")  # commands that are sent with their argument


class Rank:
    """One rank's part of the trainer.

    All ranks call the same method at the same time. Only rank 0 passes real arguments; the other
    ranks pass None.
    """

    def __init__(
        self, blueprint: Blueprint, policy: Policy | None, say: Callable[[str], None] = silent
    ) -> None:
        device = torch.device(blueprint.device)
        if device.type == "cuda":
            device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
            torch.cuda.set_device(device)
        self._policy = policy
        known = share(policy and asdict(policy.grammars.vocabulary))
        self._shard = Shard(blueprint, device, Grammars(lambda: Vocabulary(**known)))
        if blueprint.train.kl_coef:
            with policy.as_reference() if policy else nullcontext():
                self._shard.take(policy, frozen=False)
            self._shard.keep_reference()
        self._shard.take(policy, frozen=True)
        self.trainer = GRPOTrainer(
            self._shard,
            blueprint.train,
            blueprint.sampling,
            say,
            forward=self._shard.forward,
            all_ranks=_summed,
        )

    def take(self, _: None = None) -> None:
        """Copy the trained weights of rank 0's policy into the shards, after they were replaced."""
        self._shard.take(self._policy, frozen=False)

    def gradient(self, shares: list[list[Part]] | None) -> Stats | None:
        """Compute on each rank the gradient of its share. Return the combined stats on rank 0."""
        if shares is None:
            mine = [part and [sequence_of(plain) for plain in part] for part in receive(0)]
            return send(plain_stats(self.trainer.gradient(mine)), 0)
        for rank, share_of_rank in enumerate(shares[1:], 1):
            send([part and [*map(plain_sequence, part)] for part in share_of_rank], rank)
        stats = self.trainer.gradient(shares[0]).cpu()
        others = [stats_of(receive(rank)) for rank in range(1, len(shares))]
        return Stats.sum([stats, *others])

    def logprobs(self, sequence: TrainSequence | None) -> Tensor:
        """See `Trainer`. All ranks must call this."""
        plain = share(plain_sequence(sequence) if sequence else None)
        return self.trainer.logprobs(sequence or sequence_of(plain))

    def update(self, step: int) -> dict[str, float]:
        """Take the optimizer step on all ranks, copy the new weights to rank 0's policy, and return
        the metrics of the step. Raises TrainerError on all ranks alike.
        """
        metrics = self.trainer.update(step)
        self._shard.give(self._policy)
        return metrics

    def state(self, _: None = None) -> dict[str, Any]:
        """Return, on rank 0, the full optimizer state on the CPU, in single-process format."""
        state = self.trainer.optimizer.state_dict()
        whole: dict[int, dict[str, Any]] = {}
        for i, of in state["state"].items():
            whole[i] = {}
            for key, value in of.items():
                full = gather(value)  # all ranks take part, but only rank 0 keeps it
                if dist.get_rank() == 0:
                    whole[i][key] = full.cpu()
        return state | {"state": whole}

    def load(self, state: dict[str, Any] | None) -> None:
        """Load an optimizer state in the format of a single process, from rank 0."""
        params = self._shard.trainable
        small = None
        if state:
            values = {
                i: {k: None if v.shape == params[i].shape else v for k, v in of.items()}
                for i, of in state["state"].items()
            }
            small = state | {"state": values}
        whole = share(small)
        for i, of in whole["state"].items():
            for key, value in of.items():
                if value is None:
                    of[key] = scatter(state["state"][i][key] if state else None, params[i])
        self.trainer.optimizer.load_state_dict(whole)


def _summed(value: Tensor) -> Tensor:
    dist.all_reduce(value)
    return value


class RanksTrainer:
    """Trainer that shares an update among several ranks. They start when they are first needed."""

    def __init__(
        self,
        policy: Policy,
        device: str,
        adapter: AdapterConfig | None,
        cfg: TrainConfig,
        sampling: SamplingConfig,
        logs: Path,
        crew: Crew | None = None,
        say: Callable[[str], None] = silent,
        max_model_len: int = MAX_MODEL_LEN,
    ) -> None:
        """Each rank works on a `device` of its own ("cpu" or "cuda"), wherever the whole policy is.

        `crew` holds ranks that already wait. Without it, worker processes are started when needed.
        """
        self.budget = TokenBudget(cfg.microbatch_tokens, say)
        self._say = say
        self._policy = policy
        self._device = device
        self._adapter = adapter
        self._cfg = cfg
        self._sampling = sampling
        self._max_model_len = max_model_len
        self._logs = logs
        self._crew = crew
        self._rank: Rank | None = None
        self._failed = False

    def step(self, groups: list[TrajectoryGroup], step: int) -> dict[str, float]:
        def update_with(part: list[TrajectoryGroup]) -> Update:
            shares = self._shares(training_sequences(part, self._cfg, self._max_model_len)[0])

            def update() -> dict[str, float]:
                rank = self._formed()
                metrics = rank.trainer.metrics(self._all("gradient", shares))
                if metrics["data/tokens_trained"]:
                    metrics |= self._all("update", step)
                return metrics

            return update

        metrics = take_updates(groups, self._cfg, update_with)
        self._formed().trainer.check_sampled(groups, self.logprobs)
        return metrics

    def _shares(self, sequences: list[list[TrainSequence]]) -> list[list[Part]]:
        """Split into microbatches. Each rank gets equally many, of similar sizes at a time."""
        num = self._cfg.num_processes
        parts = partition(sequences, self.budget.tokens)
        total = sum(num_packed([s.ids for s in part]) for part in parts)
        if len(parts) < num:  # a rank would have nothing to do
            parts = partition(sequences, -(-total // num))
        parts.sort(key=lambda part: -num_packed([s.ids for s in part]))
        dealt: list[Part] = [*parts, *[None] * (-len(parts) % num)]
        return [dealt[i::num] for i in range(num)]

    def logprobs(self, sequence: TrainSequence) -> Tensor:
        self._formed()
        return self._all("logprobs", sequence)

    def save(self, file: Path) -> None:
        self._formed()
        torch.save(self._all("state", None), file)

    def load(self, file: Path) -> None:
        if self._rank:
            self._all("take", None)
        self._formed()
        self._all("load", load_state(file))

    def close(self) -> None:
        """End the workers."""
        crew, self._crew, self._rank = self._crew, None, None
        if crew is None:
            return
        if not self._failed:
            crew.tell(json.dumps(["close", None]))
        crew.close(now=self._failed)
        if dist.is_initialized() and not (self._failed and self._device == "cuda"):
            dist.destroy_process_group()  # NCCL would wait for the dead

    def _formed(self) -> Rank:
        if self._rank is None:
            cfg, policy = self._cfg, self._policy
            self._crew = crew = self._crew or LocalCrew(cfg.num_processes, self._logs)
            blueprint = Blueprint(
                base=policy.base.config,
                dtype=policy.dtype,
                adapter=self._adapter,
                device=self._device,
                recomputes=policy.recomputes,
                num_threads=max(1, torch.get_num_threads() // cfg.num_processes),
                train=cfg,
                sampling=self._sampling,
            )
            crew.tell(json.dumps(["form", blueprint.plain()]))
            with self._together():
                crew.meet(cfg.num_processes)
                form_group(crew.store, 0, cfg.num_processes, blueprint.device)
                self._rank = Rank(blueprint, policy, self._say)
        return self._rank

    def _all(self, what: str, argument: Any) -> Any:
        """Run a method of `Rank` on every rank, this one included. Return this rank's result."""
        assert self._crew and self._rank
        # Large arguments go from rank to rank; the command only names the method.
        self._crew.tell(json.dumps([what, argument if what in SMALL else None]))
        with self._together():
            return getattr(self._rank, what)(argument)

    @contextmanager
    def _together(self) -> Iterator[None]:
        """Guard a collective operation: report a missing rank instead of waiting forever."""
        crew = self._crew
        assert crew
        self._failed = True  # until the block below has succeeded
        try:
            crew.check()
            with crew.working():
                yield
        except torch.OutOfMemoryError as e:
            raise TrainerError(f"out of memory on rank 0: {e}\n{LESS}") from None
        except WorkerDied as e:
            raise TrainerError(str(e)) from None
        except RuntimeError as e:
            raise TrainerError(crew.why() or f"the ranks lost each other: {e}") from e
        except NotFiniteError:  # raised on all ranks alike, so all can continue
            self._failed = False
            raise
        self._failed = False


def form_group(store: Store, rank: int, world_size: int, device: str) -> None:
    """Create the torch process group of all ranks. Raises RuntimeError."""
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo",
        store=PrefixStore("ranks", store),
        rank=rank,
        world_size=world_size,
        timeout=COLLECTIVE_TIMEOUT,
    )


def serve(store: Store, commands: Iterator[str]) -> None:
    """Run the commands of rank 0 as one of the other ranks, until rank 0 closes or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # rank 0 handles Ctrl-C, then sends "close"
    place = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store.set(ready(place[0]), "")
    rank: Rank | None = None
    for command in commands:
        try:
            what, argument = json.loads(command)
        except ValueError:
            sys.exit("received an invalid command: does another program write to MASTER_ADDR?")
        if what == "close":
            break
        if what == "form":
            blueprint = Blueprint.of(argument)
            torch.set_num_threads(blueprint.num_threads)
            form_group(store, *place, blueprint.device)
            rank = Rank(blueprint, None)
            continue
        try:
            getattr(rank, what)(argument)
        except NotFiniteError:  # raised on all ranks alike, and rank 0 reports it
            continue
        except torch.OutOfMemoryError as e:
            sys.exit(f"out of memory: {e}\n{LESS}")
    if dist.is_initialized():
        dist.destroy_process_group()


def serve_if_launched(num_processes: int) -> bool:
    """Serve as a rank other than 0, if a cluster's launcher started this process as one.

    Return whether it did. Raises UsageError if launcher and config disagree.
    """
    place = launched()
    if place is None or place.rank == 0:
        return False
    check_world_size(place, num_processes)
    store = join()
    end_with(store)
    serve(store, commands_in(store))
    return True


if __name__ == "__main__":
    file = Path(sys.argv[1])
    commands = commands_of_parent(file.parent)
    serve(FileStore(str(file), int(os.environ["WORLD_SIZE"])), commands)
