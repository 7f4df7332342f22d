"""A folder with all weights, which transformers, vLLM and others load as any model."""

from __future__ import annotations

import shutil
from pathlib import Path

from art_cli.config.schema import ModelConfig
from art_cli.config.targets import MergedConfig
from art_cli.deploy.base import Deployment, Job, Plan, Source
from art_cli.deploy.chat_template import served_template
from art_cli.deploy.store import Store
from art_cli.errors import UsageError
from art_cli.runs.checkpoint import weight_files, write_folder
from art_cli.system.checksums import SUMS

WEIGHTS = "weights"  # in the folder of a deployment


class MergedTarget:
    """Implements Target."""

    def __init__(self, settings: MergedConfig) -> None:
        self._settings = settings

    def plan(self, source: Source, name: str) -> Plan:
        folder = Path(
            self._settings.folder or source.run.deployment("merged", name) / WEIGHTS
        ).absolute()
        known = Store(source.run).find("merged", name)
        if folder.exists() and not _is_ours(folder, known):
            raise UsageError(f"{folder} is not empty; choose another: folder=PATH")
        lines = [("what", merged_words(source)), ("to", str(folder))]
        return Plan(source=source, name=name, lines=lines, details=folder)

    def deploy(self, plan: Plan, job: Job) -> None:
        make_merged(plan.source, plan.details, job)
        job.deployment.url = str(plan.details)
        job.deployment.state = "ready"

    def state(self, deployment: Deployment) -> str:
        return "ready" if has_merged(deployment) else "gone"

    def undeploy(self, job: Job) -> str:
        return remove_merged(job.deployment)


def _is_ours(folder: Path, known: Deployment | None) -> bool:
    """Return whether a deployment may write there: nothing else is in the folder than its weights.

    One that was killed may have put them there and not yet noted it.
    """
    if folder.is_file():
        return False
    noted = known is not None and known.made.get("folder") == str(folder)
    killed = known is not None and known.state == "deploying" and (folder / SUMS).is_file()
    return noted or killed or not any(folder.iterdir())


def merged_words(source: Source) -> str:
    """Return what `write_merged` writes."""
    return "the adapter, merged into its base" if source.has_adapter else "all weights"


def make_merged(source: Source, folder: Path, job: Job) -> None:
    """Run `write_merged` as a part of a deployment. Raises as that does."""
    job.report("merging the weights")
    write_merged(source, folder)
    job.deployment.made["folder"] = str(folder)


def has_merged(deployment: Deployment) -> bool:
    """Return whether the weights are there."""
    return "folder" in deployment.made and Path(deployment.made["folder"]).is_dir()


def remove_merged(deployment: Deployment) -> str:
    """Remove the weights, and return what was done, for the user's eyes."""
    if not has_merged(deployment):
        return "its weights were gone already"
    folder = deployment.made.pop("folder")
    shutil.rmtree(folder)
    return f"{folder} is removed"


def write_merged(source: Source, folder: Path) -> None:
    """Write all weights of a checkpoint, with config and tokenizer, in the dtype of the base.

    The folder appears whole or not at all. Raises UsageError where the base cannot be loaded,
    TrainerError where the disk is full.
    """

    def write(to: Path) -> None:
        if source.has_adapter:
            from art_cli.models.merge import merge_folder  # seconds, which a plan does not need

            merge_folder(source.base, source.folder, to)
        for path in weight_files(source.folder):
            if not path.name.startswith("adapter_") and path.name != "README.md":
                shutil.copy(path, to / path.name)
        write_template(to, to, source.experiment.model)

    write_folder(folder, write)


def write_template(weights: Path, to: Path, model: ModelConfig) -> None:
    """Write a chat template that says what was trained on, where that of `weights` does not.

    It goes into the folder `to`, for whoever renders it.
    """
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(weights))
    if template := served_template(tokenizer, model):
        (to / "chat_template.jinja").write_text(template, encoding="utf-8")
