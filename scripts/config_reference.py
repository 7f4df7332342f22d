"""Write docs/config.md's reference from art_cli/config/: every section, key and default.

    python scripts/config_reference.py

A test fails where the page is not what this writes.
"""

from __future__ import annotations

from pathlib import Path

from art_cli.config import agent, llm, opponents, schema, targets
from art_cli.config.reference import Key, about, keys_of

PAGE = Path(__file__).parents[1] / "docs" / "config.md"
MARK = "<!-- From here on the page is made by scripts/config_reference.py. -->\n"
# What stands where a section is a part of another one, or stands for the arguments of a target.
SECTIONS = {
    "": schema.Experiment,
    "env": schema.EnvConfig,
    "env.opponents": opponents.OpponentsConfig,
    "env.opponents.train, a checkpoint": opponents.SavedPolicyConfig,
    "agent": agent.AgentConfig,
    "agent.train": agent.TrainedConfig,
    "model": schema.ModelConfig,
    "model.adapter": schema.AdapterConfig,
    "model.tiny": schema.TinyConfig,
    "warmup": schema.WarmupConfig,
    "engine": schema.EngineConfig,
    "sampling": schema.SamplingConfig,
    "judge": schema.JudgeConfig,
    "judge.prices": llm.PricesConfig,
    "reward": schema.RewardConfig,
    "train": schema.TrainConfig,
    "eval": schema.EvalConfig,
    "checkpoint": schema.CheckpointConfig,
    "track": schema.TrackConfig,
    "track.wandb": schema.WandbConfig,
    "track.otlp": schema.OtlpConfig,
    "track.mlflow": schema.MlflowConfig,
    "backend": schema.BackendConfig,
    "deploy": schema.DeployConfig,
    **{f"deploy.args, to: {name}": cls for name, cls in targets.TARGETS.items()},
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
