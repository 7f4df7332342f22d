"""The Hugging Face Hub: a repository with the weights and a model card."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from huggingface_hub import HfApi, constants, get_token
from huggingface_hub.errors import HfHubHTTPError

from art_cli.config.sections.deploy import HubConfig
from art_cli.deploy.base import Deployment, Job, Plan, Source
from art_cli.deploy.store import Store
from art_cli.deploy.targets.card import write_card
from art_cli.deploy.targets.merged import write_merged, write_template
from art_cli.errors import ArtError, PreflightError, UsageError
from art_cli.runs.checkpoint import weight_files


class HubTarget:
    """Implements Target."""

    def __init__(self, settings: HubConfig) -> None:
        self._settings = settings
        self._api = HfApi()

    def plan(self, source: Source, name: str) -> Plan:
        repo, lacks = name if "/" in name else f"YOU/{name}", ""
        try:
            repo = self._repo(source, name)
        except PreflightError as e:
            lacks = str(e)
        weights = self._weights(source)
        what = weights if source.has_adapter else "all weights"
        who = "private" if self._settings.private else "for all to see"
        return Plan(
            source=source,
            name=name,
            lines=[
                ("what", f"{what}, the tokenizer, and a model card"),
                ("to", f"{constants.ENDPOINT}/{repo}, {who}"),
            ],
            details=(repo, weights),
            lacks=lacks,
        )

    def _repo(self, source: Source, name: str) -> str:
        """Return the repository of that name. Raises PreflightError, UsageError."""
        if not get_token():
            raise PreflightError(
                "there is no token for the Hugging Face Hub: set HF_TOKEN, or run `hf auth login`"
            )
        with _explained():
            owner = self._api.whoami()["name"]
            repo = name if "/" in name else f"{owner}/{name}"
            known = Store(source.run).find("hf", name)
            is_ours = known is not None and "repo" in known.asked
            if not is_ours and self._api.repo_exists(repo):
                raise UsageError(f"{repo} is there already; choose a name: --name {owner}/NAME")
        return repo

    def _weights(self, source: Source) -> str:
        """Return which weights to upload. An adapter needs a base that others can download."""
        is_shared = source.has_adapter and "/" in source.base and not Path(source.base).exists()
        wish = self._settings.weights
        if wish == "adapter" and not is_shared:
            raise UsageError(
                f"weights=adapter: the base {source.base} is on this machine alone; weights=merged"
            )
        return "the adapter" if is_shared and wish != "merged" else "the merged weights"

    def deploy(self, plan: Plan, job: Job) -> None:
        repo, weights = plan.details
        deployment = job.deployment
        deployment.asked = ["repo"]
        job.keep()
        with _explained(), tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "model"
            if weights == "the adapter":
                folder.mkdir()
                for file in weight_files(plan.source.folder):
                    shutil.copy(file, folder / file.name)
                write_template(plan.source, folder, folder)
            else:
                job.report("merging the weights")
                write_merged(plan.source, folder)
            write_card(plan.source, repo, folder, is_adapter=weights == "the adapter")
            self._api.create_repo(repo, private=self._settings.private, exist_ok=True)
            deployment.made["repo"] = repo
            deployment.url = f"{constants.ENDPOINT}/{repo}"
            job.keep()
            job.report("uploading")
            self._api.upload_folder(
                repo_id=repo, folder_path=folder, commit_message=f"Step {plan.source.step}"
            )
        deployment.state = "ready"

    def state(self, deployment: Deployment) -> str:
        with _explained():
            return "ready" if self._api.repo_exists(deployment.made.get("repo", "/")) else "gone"

    def undeploy(self, job: Job) -> str:
        deployment = job.deployment
        repo = deployment.made.get("repo")
        if repo and deployment.name not in (repo, repo.rpartition("/")[2]):
            raise ArtError(
                f"the record of {deployment.name} names the repository {repo}, which is another; "
                "look at both, and delete what you do not need at the Hub itself"
            )
        if repo:
            with _explained():
                self._api.delete_repo(repo, missing_ok=True)
            del deployment.made["repo"]
        deployment.asked = []
        return f"{repo} is deleted" if repo else "nothing was made"


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Raise the Hub's errors as errors of art."""
    try:
        yield
    except HfHubHTTPError as e:
        status, said = e.response.status_code, e.server_message or str(e).strip().splitlines()[0]
        if status == 401:
            raise PreflightError(f"the Hub refuses the token: {said}") from e
        if status == 403:
            raise UsageError(f"the token may not do this: {said}; it needs write access") from e
        raise ArtError(f"the Hub: HTTP {status}: {said}") from e
    except RuntimeError as e:  # an error of the upload, whose cause is chained
        raise ArtError(f"the Hub: {e} {e.__cause__ or ''}".strip()) from e
    except OSError as e:
        raise PreflightError(f"{constants.ENDPOINT} cannot be reached: {e}") from e
