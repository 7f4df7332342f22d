"""Together AI: a dedicated endpoint that serves the adapter, merged into its base by the service.

model -> its files -> endpoint -> deployment, ready after some 20 minutes -> traffic -> an answer

Each is made once: its id is kept as soon as it is known, and where an answer was lost it is looked
for by its name before it is asked for again.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from art_cli.config.sections.deploy import TogetherConfig
from art_cli.deploy.base import ADAPTER_FILES, Deployment, Job, Plan, Source
from art_cli.deploy.store import begin_billing, end_billing
from art_cli.deploy.targets.merged import write_template
from art_cli.deploy.targets.together.api import (
    CONFLICT,
    GONE,
    KEY,
    ApiError,
    TogetherAPI,
    Unanswered,
)
from art_cli.deploy.targets.together.catalogue import cheapest, find_base
from art_cli.deploy.targets.together.made_once import MadeOnce, check_named, forget, ids_of
from art_cli.deploy.targets.together.upload import upload
from art_cli.errors import ArtError, PreflightError
from art_cli.runs.checkpoint import weight_files
from art_cli.system.progress import Report

READY_TIMEOUT = 3 * 3600.0  # seconds; a first start takes about twenty minutes
ROUTE_TIMEOUT = 300.0  # until a deployment that is ready gets its traffic
STOP_TIMEOUT = 600.0
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 15.0  # seconds between looks


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """The findings of a plan."""

    project: str
    base_id: str
    base_name: str
    config: str  # projects/P/configs/C


class TogetherTarget:
    """Implements Target."""

    def __init__(self, settings: TogetherConfig) -> None:
        self._settings = settings
        self._api_: TogetherAPI | None = None

    @property
    def _api(self) -> TogetherAPI:
        self._api_ = self._api_ or TogetherAPI()
        return self._api_

    # ---------------------------------------------------------------- plan

    def plan(self, source: Source, name: str) -> Plan:
        wanted = self._settings.base or source.experiment.model.base
        size = sum(f.stat().st_size for f in _files(source).values())
        replicas = self._settings.replicas
        idle = self._settings.idle_minutes
        until = f", or {idle} minutes without a call" if idle else ""
        try:
            project = self._project()
        except PreflightError as e:
            lines = [
                ("to", f"Together AI, as {name}"),
                ("base", f"{wanted} (not looked up: whether Together serves it)"),
                ("hardware", f"{self._settings.gpu or 'the cheapest'} (not looked up)"),
                ("upload", f"{size / 2**20:.1f} MiB"),
                ("price", f"not looked up; from the start until `art undeploy`{until}"),
            ]
            return Plan(
                source=source, name=name, lines=lines, serves=True, bills=True, lacks=str(e)
            )
        base = find_base(self._api, wanted, for_adapter=source.has_adapter)
        hardware, config, price = cheapest(self._api, base, self._settings.gpu)
        each = "is not told by the service" if price is None else f"${price * replicas:.2f} an hour"
        return Plan(
            source=source,
            name=name,
            lines=[
                ("to", f"Together AI, project {project['slug']}"),
                ("as", f"{project['slug']}/{name}"),
                ("base", base["name"] + (", the adapter merged" if source.has_adapter else "")),
                ("hardware", f"{hardware}, {replicas} replica{'s' * (replicas > 1)}"),
                ("upload", f"{size / 2**20:.1f} MiB"),
                ("price", f"{each}, from the start until `art undeploy`{until}"),
            ],
            serves=True,
            url=f"{self._api.url}/v1",
            key_env=KEY,
            bills=True,
            usd_per_hour=None if price is None else price * replicas,
            details=_Choice(
                project=project["id"],
                base_id=base["baseModelId"],
                base_name=base["name"],
                config=config,
            ),
        )

    def _project(self) -> dict[str, Any]:
        project = self._api.get("/v3/whoami").get("project")
        if not project:
            raise PreflightError(f"{KEY} belongs to no project; make a key in a project's settings")
        return project

    # -------------------------------------------------------------- deploy

    def deploy(self, plan: Plan, job: Job) -> None:
        choice: _Choice = plan.details
        deployment = job.deployment
        root, made = f"/v2/projects/{choice.project}", deployment.made
        made["project"] = choice.project
        once = MadeOnce(self._api, deployment, job.keep)
        model = {
            "name": plan.name,
            "baseModelId": choice.base_id,
            "type": "adapter" if plan.source.has_adapter else "model",
            "description": f"trained with art: {plan.source.title}",
        }
        model_id = once.make("model", f"{root}/models", model)["id"]
        if "revision" not in made:
            made["revision"] = self._upload(plan, model_id, job)
            job.keep()
        endpoint = once.make("endpoint", f"{root}/endpoints", {"name": plan.name})
        deployment.url, deployment.key_env = plan.url, plan.key_env
        deployment.model = endpoint["name"]
        at = f"{root}/endpoints/{endpoint['id']}"
        replicas = self._settings.replicas
        wanted = {
            "name": plan.name,
            "model": f"projects/{choice.project}/models/{model_id}/revisions/{made['revision']}",
            "config": choice.config,
            "autoscaling": {"minReplicas": replicas, "maxReplicas": replicas},
        }
        if self._settings.idle_minutes:
            wanted["inactiveTimeout"] = self._settings.idle_minutes
        begin_billing(deployment, plan.usd_per_hour)
        try:
            started = once.make("deployment", f"{at}/deployments", wanted)
        finally:
            if "deployment" not in deployment.asked:  # it was refused
                end_billing(deployment)
        if not job.wait:
            return
        self._until_ready(f"{at}/deployments/{started['id']}", job.report)
        self._route(at, started["id"])
        self._until_answered(deployment, job.report)
        deployment.state = "ready"

    def _upload(self, plan: Plan, model_id: str, job: Job) -> str:
        made = job.deployment.made
        sent = made.setdefault("sent", {})
        files = _files(plan.source)
        with tempfile.TemporaryDirectory() as folder:
            changed = Path(folder)
            if plan.source.has_adapter:  # its config names the folder that the base was in
                config = json.loads(files[ADAPTER_FILES[0]].read_text())
                config["base_model_name_or_path"] = plan.details.base_name
                text = json.dumps(config, indent=2, sort_keys=True)
                (changed / ADAPTER_FILES[0]).write_text(text)
            else:
                write_template(plan.source, plan.source.folder, changed)
            files |= {f.name: f for f in changed.iterdir()}
            project = plan.details.project
            revision = upload(self._api, project, model_id, files, sent, job.keep, job.report)
        del made["sent"]
        return revision

    def _until_ready(self, path: str, report: Report) -> None:
        began = time.monotonic()
        for waited in _pauses(READY_TIMEOUT):
            status = self._api.get(path)["status"]
            state, message = _word(status["state"]), status.get("message", "")
            if state == "ready":
                return
            if state in ("failed", "stopped", "stopping"):
                raise ArtError(f"Together could not start it ({state}): {message}")
            report(f"{state}, {waited / 60:.0f} min: {message}")
        minutes = (time.monotonic() - began) / 60
        raise ArtError(f"it is not ready after {minutes:.0f} minutes; the same command waits on")

    def _route(self, endpoint: str, deployment_id: str) -> None:
        """Give a deployment its share of the traffic: without one it answers 503."""
        for _ in _pauses(ROUTE_TIMEOUT):
            now = self._api.get(endpoint)
            others = [s for s in now["trafficSplit"] if s["deploymentId"] != deployment_id]
            split = [*others, {"deploymentId": deployment_id, "weight": 1}]
            if now["trafficSplit"] == split:
                return
            body = {"etag": now["etag"], "trafficSplit": split}
            try:
                self._api.insist("PATCH", endpoint, body, updateMask="trafficSplit")
                return
            except ApiError as e:
                if e.status != CONFLICT:  # somebody else changed it meanwhile: look again
                    raise
        raise ArtError("the endpoint's traffic could not be set: it changes all the time")

    def _until_answered(self, deployment: Deployment, report: Report) -> None:
        """Ask for a completion of one token until it is answered."""
        body = {
            "model": deployment.model,
            "messages": [{"role": "user", "content": "Hello"}],
            "max_tokens": 1,
        }
        problem: ArtError | None = None
        for _ in _pauses(ROUTE_TIMEOUT):
            try:
                if self._api.send("POST", "/v1/chat/completions", body)["choices"]:
                    return
            except (Unanswered, ApiError) as e:
                if isinstance(e, ApiError) and e.status != GONE:  # its route is not known yet
                    raise
                problem = e
            report("waiting for the first answer")
        raise ArtError(f"it is ready, but answers nothing: {problem}")

    # ------------------------------------------------------------ undeploy

    def state(self, deployment: Deployment) -> str:
        if "deployment" not in deployment.made:
            return "not started"
        try:
            return _word(self._api.get(_path(deployment))["status"]["state"])
        except ApiError as e:
            if e.status == GONE:
                return "gone"
            raise

    def undeploy(self, job: Job) -> str:
        deployment, made = job.deployment, job.deployment.made
        if "project" not in made:
            return "nothing was made"
        check_named(self._api, deployment)
        self._find_lost(deployment)
        root = f"/v2/projects/{made['project']}"
        endpoint = f"{root}/endpoints/{made.get('endpoint')}"
        if "deployment" in made:
            job.report("ending the traffic")
            body = {"trafficSplit": []}
            self._gone(lambda: self._api.insist("PATCH", endpoint, body, updateMask="trafficSplit"))
            self._stop(_path(deployment), job.report)
            forget(deployment, "deployment")
        end_billing(deployment)
        job.keep()
        for kind, path in (("endpoint", endpoint), ("model", f"{root}/models/{made.get('model')}")):
            if kind in made:
                self._gone(lambda path=path: self._api.insist("DELETE", path))
                forget(deployment, kind)
                job.keep()
        return "nothing of it is left at Together"

    def _find_lost(self, deployment: Deployment) -> None:
        """Find what was made although the answer never came: it costs money too."""
        root = f"/v2/projects/{deployment.made['project']}"
        once = MadeOnce(self._api, deployment, lambda: None)
        for kind in ("model", "endpoint", "deployment"):
            path = f"{root}/{kind}s"
            if kind == "deployment":
                path = f"{root}/endpoints/{deployment.made.get('endpoint')}/deployments"
            if kind in deployment.asked and kind not in deployment.made:
                once.find(kind, path, deployment.name)

    def _stop(self, path: str, report: Report) -> None:
        """Delete it; one that still runs has to be stopped before."""
        none = {"autoscaling": {"minReplicas": 0, "maxReplicas": 0}}
        for _ in _pauses(STOP_TIMEOUT):
            try:
                self._api.insist("DELETE", path)
                return
            except ApiError as e:
                if e.status == GONE:
                    return
                if e.status not in (400, CONFLICT):
                    raise
            self._gone(lambda: self._api.insist("PATCH", path, none))
            report("stopping its replicas")
        raise ArtError(f"it did not stop within {STOP_TIMEOUT / 60:.0f} minutes; ask again")

    def _gone(self, ask: Callable[[], Any]) -> None:
        """Do it, unless what it is done to is gone already."""
        try:
            ask()
        except ApiError as e:
            if e.status != GONE:
                raise


def _files(source: Source) -> dict[str, Path]:
    """Return what is uploaded, by its name there."""
    if source.has_adapter:
        return {name: source.folder / name for name in ADAPTER_FILES}
    files = weight_files(source.folder)
    return {f.name: f for f in files if f.stat().st_size}  # the service takes no empty ones


def _path(deployment: Deployment) -> str:
    ids = ids_of(deployment)
    endpoint = f"/v2/projects/{ids['project']}/endpoints/{ids.get('endpoint')}"
    return f"{endpoint}/deployments/{ids['deployment']}"


def _word(state: str) -> str:
    return state.removeprefix("DEPLOYMENT_STATE_").lower()


def _pauses(timeout: float) -> Iterator[float]:
    """Yield the seconds since the first look, look after look, until the time is over."""
    began, pause = time.monotonic(), FIRST_PAUSE
    while (waited := time.monotonic() - began) < timeout:
        yield waited
        time.sleep(pause)
        pause = min(pause * 1.5, LONGEST_PAUSE)
