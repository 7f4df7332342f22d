"""A folder with full weights, which transformers, vLLM and others load like any model.

A record names a folder, but may be a copy or come from someone else. The folder inside the
deployment belongs to the run. Any other folder is replaced or removed only if its checksums match
the record and it contains no other files.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from art_cli.config.sections.deploy import MergedConfig
from art_cli.deploy.base import Deployment, Job, Plan, Source
from art_cli.deploy.chat_template import served_template
from art_cli.deploy.store import Store
from art_cli.errors import ArtError, UsageError
from art_cli.runs.checkpoint import remove_folder, remove_leftovers, weight_files, write_folder
from art_cli.system.checksums import damage, foreign, remove_sealed, seal

WEIGHTS = "weights"  # name of the folder inside the deployment
SHARED = ".safetensors"


class MergedTarget:
    """Implements Target."""

    def __init__(self, settings: MergedConfig) -> None:
        self._settings = settings

    def plan(self, source: Source, name: str) -> Plan:
        home = source.run.deployment("merged", name).absolute()
        folder = Path(self._settings.folder or home / WEIGHTS).absolute()
        known = Store(source.run).find("merged", name)
        if folder != home / WEIGHTS and (wrong := _not_ours(folder, known)):
            raise UsageError(f"{folder} is not empty{wrong}; choose another: folder=PATH")
        if before := _other_folder(folder, known):
            raise UsageError(
                f"{name} is in {before}; end it (art undeploy {source.run.root} {name}), or choose "
                "another: --name NAME"
            )
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


def _not_ours(folder: Path, known: Deployment | None) -> str | None:
    """Return why a deployment must not write to a folder, or None if it may."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return None
    if known is None or known.made.get("folder") != str(folder):
        return " and was not written by this deployment"
    wrong = foreign(folder, known.made.get("seal"))
    return f" and {wrong}" if wrong else None


def _other_folder(folder: Path, known: Deployment | None) -> Path | None:
    """Return the folder of the existing weights if it is another one."""
    there = Path(known.made["folder"]) if known and has_merged(known) else folder
    return there if there != folder else None


def merged_words(source: Source) -> str:
    """Return a description of the weights that `write_merged` writes."""
    return "the adapter, merged into its base" if source.has_adapter else "all weights"


def make_merged(
    source: Source, folder: Path, job: Job, change: Callable[[Path], None] = lambda _: None
) -> None:
    """Run `write_merged` as a part of a deployment. Raises the same errors."""
    job.report("merging the weights")
    made, is_own = job.deployment.made, _is_own(job.deployment, folder)
    made["folder"] = str(folder)
    job.keep()

    def written(complete: Path) -> None:
        if not is_own:
            made["seal"] = seal(complete)
            job.keep()

    try:
        write_merged(source, folder, written, change)
    except ArtError:
        if not folder.exists():
            _forget(made)
        raise


def has_merged(deployment: Deployment) -> bool:
    """Return whether the weights exist."""
    return "folder" in deployment.made and Path(deployment.made["folder"]).is_dir()


def remove_merged(deployment: Deployment) -> str:
    """Remove the weights, and return a message for the user."""
    if "folder" not in deployment.made:
        return "its weights were gone already"
    folder = Path(deployment.made["folder"])
    was_there = folder.is_dir()
    try:
        remove_leftovers(folder)
        if was_there and _is_own(deployment, folder):
            remove_folder(folder)
        elif was_there and (wrong := foreign(folder, deployment.made.get("seal"))):
            _forget(deployment.made)
            return f"{folder} is left, for {wrong}: remove it yourself if it is not needed"
        elif was_there:
            remove_sealed(folder)
    except OSError as e:
        raise ArtError(f"cannot remove {folder}: {e.strerror}; the same command goes on") from e
    _forget(deployment.made)
    return f"{folder} is removed" if was_there else "its weights were gone already"


def _is_own(deployment: Deployment, folder: Path) -> bool:
    return folder == Path(deployment.home) / WEIGHTS


def _forget(made: dict[str, object]) -> None:
    for key in ("folder", "seal"):
        made.pop(key, None)


def write_merged(
    source: Source,
    folder: Path,
    written: Callable[[Path], None] = lambda _: None,
    change: Callable[[Path], None] = lambda _: None,
) -> None:
    """Write all weights of a checkpoint, with config and tokenizer, in the dtype of the base.

    The folder appears whole or not at all; `change` is called with it before its checksums are
    written, and `written` is that of `write_folder`. What another deployment of the run has written
    is not written again: the file gets a second name. Raises UsageError where the base cannot be
    loaded, TrainerError where the disk is full.
    """

    def write(to: Path) -> None:
        there = _written_before(source, folder)
        if there:
            for path in weight_files(there):
                _copy(path, to, may_link=True)
        elif source.has_adapter:
            from art_cli.models.merge import merge_folder  # seconds, which a plan does not need

            merge_folder(source.base, source.folder, to)
        for path in weight_files(source.folder):
            known = there and path.name.endswith(SHARED)
            if not known and not path.name.startswith("adapter_") and path.name != "README.md":
                _copy(path, to)
        write_template(source, to, to)
        change(to)

    write_folder(folder, write, written, "make room; the same command goes on")


def _written_before(source: Source, folder: Path) -> Path | None:
    """Return the folder in which another deployment of this checkpoint has complete weights.

    A folder outside of the run belongs to the user, who may modify its files, so it shares none.
    """
    if source.run.root.absolute() not in folder.absolute().parents:
        return None
    for other in Store(source.run).all():
        weights = Path(other.home) / WEIGHTS
        is_other = weights != folder and other.step == source.step and has_merged(other)
        if is_other and damage(weights, lambda name: name.endswith(SHARED)) is None:
            return weights
    return None


def _copy(path: Path, to: Path, *, may_link: bool = False) -> None:
    if may_link and path.name.endswith(SHARED):
        with suppress(OSError):  # the file system may not support hard links
            return os.link(path, to / path.name)
    shutil.copy(path, to / path.name)


def write_template(source: Source, weights: Path, to: Path) -> None:
    """Write a chat template that renders as in training, if the one of `weights` does not.

    `weights` is a checkpoint or a copy of one. The template goes into the folder `to`. Raise
    CheckpointError if there is no readable tokenizer, or UsageError.
    """
    from art_cli.models.saved_weights import load_tokenizer

    tokenizer = load_tokenizer(weights, source.folder)
    if template := served_template(tokenizer, source.experiment.model):
        (to / "chat_template.jinja").write_text(template, encoding="utf-8")
