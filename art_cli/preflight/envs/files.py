"""Check of the files that an env puts into an agent's folder."""

from __future__ import annotations

import copy
from collections.abc import Coroutine
from typing import Any

from art_cli.envs.base import Env
from art_cli.preflight.check_result import CheckResults, failed, ok, place_of
from art_cli.preflight.envs.episodes import errors_of
from art_cli.preflight.envs.play import Played, play_one
from art_cli.preflight.envs.players import Repeater
from art_cli.preflight.envs.subject import NUM_REPLAYED, Subject


def check_files(s: Subject) -> CheckResults:
    """Check that files are written and reproducible, and that an idle agent gets a score."""
    remote = s.env_class.art_remote
    if "files" not in remote.places if remote else s.env_class.files is Env.files:
        yield ok("an agent's folder begins empty")
        return
    plays = [[_play(s, n) for _ in range(2)] for n in range(len(s.chosen[:NUM_REPLAYED]))]
    yield from errors_of(s, [p for pair in plays for p in pair])
    for first, again in plays:
        names = sorted(first.files.keys() | again.files.keys())
        other = next((n for n in names if first.files.get(n) != again.files.get(n)), None)
        if other is not None and not (first.error or again.error):
            what = f"files() of {first.trajectory.scenario.id!r} gave another {other!r:.100}"
            where = place_of(s.env_class, "files")
            yield failed(f"{what} the second time", where, "use self.rng")
            break
    num = max((len(p.files) for pair in plays for p in pair), default=0)
    yield ok(f"an agent's folder begins with up to {num} files, the same each time")


def _play(s: Subject, n: int) -> Played:
    scenario = copy.deepcopy(s.chosen[n])
    player = Repeater([])
    allowed = s.options.allow_writes

    def play() -> Coroutine[Any, Any, Played]:
        who = s.env_class, s.settings, scenario, lambda _: player, allowed
        return play_one(*who, has_folder=True)

    return s.watch.run_async(play, s.options.timeout, "the episode")
