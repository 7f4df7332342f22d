"""Write docs/config.md's reference from art_cli/config/: every section, key and default.

    python scripts/config_reference.py

A test fails where the page is not what this writes.
"""

from __future__ import annotations

from pathlib import Path

from art_cli.config import schema
from art_cli.config.reference import Key, about, keys_of
from art_cli.config.sections import (
    agent,
    backend,
    checkpoint,
    deploy,
    engine,
    env,
    judge,
    llm,
    model,
    reward,
    sampling,
    sft,
    track,
    train,
)
from art_cli.config.sections import eval as evaluation

PAGE = Path(__file__).parents[1] / "docs" / "config.md"
MARK = "<!-- From here on the page is made by scripts/config_reference.py. -->\n"
# What stands where a section is a part of another one, or stands for the arguments of a target.
SECTIONS = {
    "": schema.Experiment,
    "env": env.EnvConfig,
    "env.opponents": env.OpponentsConfig,
    "env.opponents.train, a checkpoint": env.SavedPolicyConfig,
    "agent": agent.AgentConfig,
    "agent.train": agent.TrainedConfig,
    "model": model.ModelConfig,
    "model.adapter": model.AdapterConfig,
    "model.tiny": model.TinyConfig,
    "sft": sft.SFTConfig,
    "engine": engine.EngineConfig,
    "sampling": sampling.SamplingConfig,
    "judge": judge.JudgeConfig,
    "judge.prices": llm.PricesConfig,
    "reward": reward.RewardConfig,
    "train": train.TrainConfig,
    "eval": evaluation.EvalConfig,
    "checkpoint": checkpoint.CheckpointConfig,
    "track": track.TrackConfig,
    "track.wandb": track.WandbConfig,
    "track.otlp": track.OtlpConfig,
    "track.mlflow": track.MlflowConfig,
    "track.custom.NAME": track.UserTrackerConfig,
    "backend": backend.BackendConfig,
    "deploy": deploy.DeployConfig,
    **{f"deploy.args, use: {name}": cls for name, cls in deploy.TARGETS.items()},
}


def reference() -> str:
    """Return the tables, in Markdown."""
    return "\n".join(_section(name, cls) for name, cls in SECTIONS.items())


def _section(name: str, cls: type) -> str:
    title = f"## {f'`{name}`' if name else 'The top of the file'}\n"
    rows = [_row(key) for key in keys_of(cls)]
    if not rows:
        return f"{title}\n{about(cls)} It has no settings.\n"
    table = ["| key | what it takes | default | |", "|---|---|---|---|", *rows]
    return f"{title}\n{about(cls)}\n\n" + "\n".join(table) + "\n"


def _row(key: Key) -> str:
    meaning = key.in_words.replace("|", "or")
    return f"| `{key.name}` | {key.takes} | {key.default} | {meaning} |".replace("|  |", "| |")


if __name__ == "__main__":
    head = PAGE.read_text(encoding="utf-8").partition(MARK)[0]
    PAGE.write_text(f"{head}{MARK}\n{reference()}", encoding="utf-8")
