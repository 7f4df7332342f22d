from __future__ import annotations

from pathlib import Path

import pytest
from short_run import CONFIG

from art_cli.config.load import LoadedExperiment, load_experiment
from art_cli.errors import PreflightError, UsageError
from art_cli.lab.space import read_space
from art_cli.lab.study import TrialRecord, opened


@pytest.fixture
def config(tmp_path: Path) -> str:
    file = tmp_path / "a.yaml"
    file.write_text(CONFIG)
    return str(file)


def load(words: list[str]) -> LoadedExperiment:
    return load_experiment([Path(words[0])], words[1:])


def test_the_config_itself_goes_first_where_it_is_in_all_ranges(config: str) -> None:
    rates = "train.learning_rate=1e-3..1e-2:log"  # it says 4e-3, and group_size 4
    assert read_space([config, rates, "train.group_size=2..8"], load).own == {
        "train.learning_rate": "0.004",
        "train.group_size": "4",
    }
    assert read_space([config, rates, "train.group_size=2..8:3"], load).own is None
    assert read_space([config, rates, "train.group_size=2,8"], load).own is None


def test_ranges_with_a_size_are_a_grid(config: str) -> None:
    space = read_space([config, "train.learning_rate=0.1..0.3:0.1", "train.group_size=2..3"], load)
    assert space.size == 6
    assert [*space.grid()[0].values()] == ["0.1", "2"]
    assert {point["train.learning_rate"] for point in space.grid()} == {"0.1", "0.2", "0.3"}


def test_values_with_commas_are_quoted_or_in_brackets(config: str) -> None:
    words = [config, 'name="a"', "env.args={}", "train.loss='grpo','gspo'"]
    [axis] = read_space(words, load).axes
    assert axis.edges == ("'grpo'", "'gspo'")


def test_a_range_may_be_what_the_config_lacks(config: str, tmp_path: Path) -> None:
    lacking = tmp_path / "lacking.yaml"
    lacking.write_text(CONFIG.replace("steps: 8, ", ""))
    space = read_space([str(lacking), "train.steps=4..8"], load)
    assert not space.is_whole and space.own is None


def test_a_section_that_is_null_is_made_by_its_keys(tmp_path: Path) -> None:
    lines = [line for line in CONFIG.splitlines() if "tiny: {" not in line and "sft:" not in line]
    file = tmp_path / "a.yaml"
    file.write_text("\n".join(lines).replace("base: tiny", "base: some/base"))
    space = read_space([str(file), "model.adapter.rank=8,16"], load)
    assert space.is_whole and space.own is None and space.size == 2


def test_who_is_behind_at_a_rung_is_stopped_and_an_interrupted_trial_goes_on(
    config: str, tmp_path: Path
) -> None:
    space = read_space([config, "train.learning_rate=1e-3..1e-2:log"], load)
    with opened(tmp_path, space, "it", 10, 4) as study:
        first = study.next()
        assert first and first.point == {"train.learning_rate": "0.004"}
        assert [study.report(0, step, 0.5) for step in (10, 20, 30)] == [False] * 3
        study.end(0, (0.5, 0.7))
        second = study.next()
        assert second and not study.report(1, 5, 0.1)
    with opened(tmp_path, space, "it", 10, 4) as study:
        again = study.next()
        assert again and (again.number, again.point) == (1, second.point)
        assert not study.report(1, 5, 0.1)
        assert study.report(1, 10, 0.1)
        study.stop(1)
        table = study.table()
        assert (table[0].value, table[0].values) == (pytest.approx(0.6), (0.5, 0.7))
        assert (table[1].state, table[1].value, table[1].step) == ("stopped", 0.1, 10)


def test_a_point_that_comes_again_ends_as_it_did_before(config: str, tmp_path: Path) -> None:
    space = read_space([config, "train.learning_rate=1e-3..1e-2:log", "train.group_size=2,4"], load)
    again = read_space([config, "train.group_size=2,4", "train.loss=grpo,gspo,cispo"], load)
    assert space.size is None and again.size == 6
    seen: list[TrialRecord] = []
    with opened(tmp_path, again, "it", 10, 5) as study:  # of six points: none is sure to be tried
        while trial := study.next():
            seen.append(trial)
            if trial.state == "running":
                study.end(trial.number, (float(trial.number),))
        ended = study.table()
    firsts: dict[str, TrialRecord] = {}
    for trial in ended:
        first = firsts.setdefault(str(trial.point), trial)
        assert trial.same_as == (None if first is trial else first.number)
        assert trial.values == first.values
    assert len(ended) == len(seen) == 5 and any(t.same_as is not None for t in ended)


def test_a_sweep_draws_the_same_points_again_and_new_ones_when_it_goes_on(
    config: str, tmp_path: Path
) -> None:
    space = read_space([config, "train.learning_rate=1e-2..1e-1:log"], load)

    def drawn(name: str, most: int) -> list[str]:
        points = []
        with opened(tmp_path / name, space, "it", 10, most) as study:
            while trial := study.next():
                points += trial.point.values()
                study.end(trial.number, (0.5,))
        return points

    first, second = drawn("a", 3), drawn("b", 3)
    assert first == second and len({*first}) == 3
    more = drawn("a", 6)
    assert len({*first, *more}) == 6 and more == drawn("b", 6)


def test_a_folder_has_one_sweep_at_a_time(config: str, tmp_path: Path) -> None:
    space = read_space([config, "train.group_size=2,4"], load)
    with opened(tmp_path, space, "it", 10, 5) as study:
        assert study.total == 2
        with (
            pytest.raises(PreflightError, match="in use by another"),
            opened(tmp_path, space, "it", 10, 5),
        ):
            pass


def test_runs_that_no_study_knows_are_not_taken_for_its_own(config: str, tmp_path: Path) -> None:
    space = read_space([config, "train.group_size=2,4"], load)
    run = tmp_path / "sweep" / "t0-1000"
    run.mkdir(parents=True)
    (run / "config.yaml").touch()
    with (
        pytest.raises(UsageError, match="has runs and no sweep"),
        opened(tmp_path / "sweep", space, "it", 10, 5),
    ):
        pass


def test_a_damaged_file_is_told(config: str, tmp_path: Path) -> None:
    space = read_space([config, "train.group_size=2,4"], load)
    (tmp_path / "sweep.db").write_bytes(b"not a database, but long enough to be one" * 100)
    with (
        pytest.raises(UsageError, match=r"sweep\.db cannot be read: .*not a database"),
        opened(tmp_path, space, "it", 10, 5),
    ):
        pass
