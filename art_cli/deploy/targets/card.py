"""The model card of a run: its task, data, results, and the command to reproduce it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from art_cli.config.yaml import read_document
from art_cli.deploy.base import Source
from art_cli.errors import ArtError
from art_cli.runs.directory import step_of
from art_cli.runs.trackers.run_numbers import sparkline
from art_cli.system.files import read_object
from art_cli.system.untrusted import is_number
from art_cli.types import Split

ROWS = 12  # rows of the table of rewards over steps
SPLITS: tuple[Split, ...] = ("test", "val")


def write_card(source: Source, repo: str, folder: Path, *, is_adapter: bool) -> None:
    """Write README.md without paths of this machine."""
    head = yaml.safe_dump(_metadata(source, repo, is_adapter=is_adapter), sort_keys=False)
    body = "\n".join(_body(source, repo, is_adapter=is_adapter))
    (folder / "README.md").write_text(f"---\n{head}---\n\n{body}\n", encoding="utf-8")


def _metadata(source: Source, repo: str, *, is_adapter: bool) -> dict[str, Any]:
    cfg = source.experiment
    head: dict[str, Any] = {
        "library_name": "peft" if is_adapter else "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["art", "grpo", "reinforcement-learning", "agent"],
    }
    if "/" in cfg.model.base and not Path(cfg.model.base).exists():
        head["base_model"] = cfg.model.base
    if source.val_reward is not None:
        metric = {"type": "reward", "name": "mean reward", "value": round(source.val_reward, 4)}
        result = {
            "task": {"type": "text-generation"},
            "dataset": {"name": f"{cfg.env.use} (val)", "type": "custom"},
            "metrics": [metric],
        }
        head["model-index"] = [{"name": repo.rpartition("/")[2], "results": [result]}]
    return head


def _body(source: Source, repo: str, *, is_adapter: bool) -> Iterator[str]:
    cfg = source.experiment
    how = f"LoRA of rank {cfg.model.adapter.rank}" if cfg.model.adapter else "all weights"
    base = "a small model made on the spot" if cfg.model.base == "tiny" else _named(cfg.model.base)
    yield f"# {repo.rpartition('/')[2]}\n"
    yield (
        f"An agent for `{_named(cfg.env.use)}`, trained with GRPO ({cfg.train.loss}, {how}) from "
        f"{base}: the checkpoint after step {source.step} of {cfg.train.steps}.\n"
    )
    yield from _course(source)
    yield from _evaluation(source)
    yield "## Use\n"
    yield from _use(cfg.model.base, repo, is_adapter=is_adapter)
    yield (
        "\nIts chat template says how it writes tool calls. It was sampled at temperature "
        f"{cfg.sampling.temperature:g}.\n"
    )
    yield "## Config\n\n```yaml"
    yield _config(source)
    yield "```"


def _course(source: Source) -> Iterator[str]:
    """Return the rewards over steps, as a sentence and as a table."""
    rows = [r for r in source.run.read_metrics() if step_of(r) <= source.step]
    trained = [r["train/reward"] for r in rows if is_number(r.get("train/reward"))]
    vals = [(step_of(r), r["val/reward"]) for r in rows if is_number(r.get("val/reward"))]
    if trained:
        yield "## Course\n"
        few = trained[:: max(1, len(trained) // 60)]
        yield f"Training reward `{sparkline(few)}` {trained[0]:.3f} to {trained[-1]:.3f}\n"
    if vals:
        few = [*vals[: -1 : max(1, len(vals) // ROWS)], vals[-1]]
        yield "| step | validation reward |\n|---:|---:|"
        yield "\n".join(f"| {step} | {reward:.3f} |" for step, reward in few) + "\n"


def _evaluation(source: Source) -> Iterator[str]:
    """Return the result of the last `art eval`, if there is one."""
    for split in SPLITS:
        path = source.run.evaluation(split)
        if not path.exists():
            continue
        yield f"## Evaluation ({split})\n\n| | mean reward | 95% | episodes |\n|---|---:|---:|---:|"
        try:
            for name, row in read_object(path, {}).items():
                reward = row["metrics"].get("reward") or {}
                mean, low, high = (_number(reward.get(key)) for key in ("value", "low", "high"))
                yield f"| {name} | {mean} | {low} to {high} | {row['episodes']} |"
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
            raise ArtError(f"{path} is damaged ({e}); remove it, or evaluate again") from None
        yield ""
        return


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _use(base: str, repo: str, *, is_adapter: bool) -> Iterator[str]:
    yield "```python\nfrom transformers import AutoModelForCausalLM, AutoTokenizer\n"
    yield f'tokenizer = AutoTokenizer.from_pretrained("{repo}")'
    if is_adapter:
        yield "from peft import PeftModel"
        yield f'base = AutoModelForCausalLM.from_pretrained("{base}")'
        yield f'model = PeftModel.from_pretrained(base, "{repo}")'
    else:
        yield f'model = AutoModelForCausalLM.from_pretrained("{repo}")'
    yield "```"


def _config(source: Source) -> str:
    """Return the run's config without secrets, with each path reduced to its last part."""
    config = read_document(source.run.config)
    return yaml.safe_dump(_without_paths(config), sort_keys=False).strip()


def _without_paths(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_paths(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_without_paths(v) for v in value]
    return _named(value) if isinstance(value, str) else value


def _named(text: str) -> str:
    """Return the last part of a path of this machine, and any other text unchanged."""
    return text.rpartition("/")[2] if text.startswith(("/", "~")) else text
