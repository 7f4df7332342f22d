"""The keys that may change when a run is resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from art_cli.config.yaml import read_file
from art_cli.config.yaml_values import read_yaml
from art_cli.errors import ConfigError, UsageError

# A longer run, another tracker, more checkpoints or money do not change the result of a step.
# Splitting the gradient differently changes only its rounding.
MAY_CHANGE = (
    "train.steps",
    "train.microbatch_tokens",
    "train.gradient_checkpointing",
    "train.num_processes",
    "track",
    "checkpoint",
    "deploy",
    "backend",
    "env.concurrency",
    "judge.max_usd",
    "judge.concurrency",
    "judge.timeout",
    "judge.retries",
    "judge.api_base",
    "judge.api_key_env",
    *(
        f"agent.{key}"
        for key in ("url", "api_key_env", "bind", "public_url", "concurrency", "max_usd")
    ),
)


def check_same(root: Path, config: Path, after: str) -> None:
    """Raise UsageError if a run that was started with `config` cannot resume with `after`.

    Raises ConfigError if the file is damaged.
    """
    _, problems = read_file(config)
    if problems:
        raise ConfigError([f"{p}; what the run was started with is lost" for p in problems])
    if changed := changes_on_resume(config.read_text(encoding="utf-8"), after):
        raise UsageError(
            f"{root} was started with another config, so it cannot go on with this one:\n"
            + "\n".join(f"  {line}" for line in changed)
            + "\nUndo the change, start another run: name=NEW_NAME, or begin it anew: --overwrite"
        )


def changes_on_resume(before: str, after: str) -> list[str]:
    """Return a line for each key that differs between two resolved configs and must not."""
    old, new = flat(read_yaml(before)), flat(read_yaml(after))
    return [
        f"{key}: {old.get(key, '(absent)')!r} -> {new.get(key, '(absent)')!r}"
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key) and not _may_change(key)
    ]


def _may_change(key: str) -> bool:
    return any(key == allowed or key.startswith(allowed + ".") for allowed in MAY_CHANGE)


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Flatten a document to dotted keys: `train.steps` -> 100."""
    if not isinstance(value, dict) or not value:
        return {prefix: value}
    out: dict[str, Any] = {}
    for key, item in value.items():
        out |= flat(item, f"{prefix}.{key}" if prefix else str(key))
    return out
