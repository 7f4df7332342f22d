"""kill -9 in a run of other families of models: with --resume it ends bit for bit the same."""

import signal
from pathlib import Path

import pytest
from architectures import write_architecture
from short_run import CONFIG, Art, held_after, results, with_pauses

FAMILIES = ("qwen3_5_text", "gpt_oss", "gemma3_text", "qwen3_moe", "lfm2")
STEPS, KILLED_AFTER = 4, 2
WARMUP = "sft: {num_demonstrations: 200, epochs: 4, learning_rate: 5.0e-3, optimizer: muon}\n"
CHANGES = {
    WARMUP: "",
    "  tiny: {hidden_size: 32, num_layers: 1, vocab_size: 300}\n": "",
    "steps: 8, scenarios_per_step: 4": f"steps: {STEPS}, scenarios_per_step: 2",
    "every: 3, episodes: 8": f"every: {STEPS}, episodes: 4",
    "every: 2, keep: 1": "every: 1, keep: 2",
}


@pytest.fixture(scope="module", params=FAMILIES)
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_architecture(request.param, tmp_path_factory.mktemp(request.param))


@pytest.mark.parametrize("adapter", ["null", "{rank: 4}"], ids=["all", "LoRA"])
def test_a_killed_run_ends_as_if_it_had_not_been_killed(
    base: Path, adapter: str, tmp_path: Path
) -> None:
    config = CONFIG.replace("base: tiny", f"base: {base}").replace("null", adapter)
    for old, new in CHANGES.items():
        assert old in config
        config = config.replace(old, new)
    config += "engine: {max_model_len: 256}\n"
    whole, killed = (start(tmp_path / name, config) for name in ("whole", "killed"))
    held_after(KILLED_AFTER, killed)
    killed.signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL, killed.output
    assert 0 < killed.run.checkpoint_steps()[-1] < STEPS
    (killed.folder / "hold").unlink()
    again = Art(killed.folder, "config.yaml", "--resume")
    assert whole.wait() == 0, whole.output
    assert again.wait() == 0, again.output
    expected, found = results(whole.run), results(again.run)
    norms = [row["loss/grad_norm"] for row in expected["metrics"] if "loss/grad_norm" in row]
    assert len(norms) == STEPS and min(norms) > 0
    assert found["metrics"] == expected["metrics"]
    assert found.keys() == expected.keys()
    assert [name for name in expected if found[name] != expected[name]] == []


def start(folder: Path, config: str) -> Art:
    folder.mkdir()
    (folder / "config.yaml").write_text(with_pauses(folder, config))
    env = folder / "env.py"
    env.write_text(env.read_text().replace("Opposites", "Letters"))
    return Art(folder, "config.yaml")
