"""Deployment of a checkpoint, idempotent and resumable, and its removal."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from art_cli.config.targets import read_target
from art_cli.deploy.base import Deployment, Job, Plan, Source, Target
from art_cli.deploy.build import make_target
from art_cli.deploy.store import Store
from art_cli.errors import ArtError, Interrupted, PreflightError, UsageError
from art_cli.system.progress import Report, silent

if TYPE_CHECKING:
    from art_cli.training.model import TrainableModel


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]*")  # some targets take less, and say so


def check_name(target: str, plan: Plan) -> Deployment | None:
    """Return the deployment of this name if it exists or was interrupted.

    Raise UsageError if it belongs to another checkpoint or the name is invalid.
    """
    if not NAME.fullmatch(plan.name):
        raise UsageError(f"the name {plan.name!r}: expected letters, digits and . _ - : /")
    known = Store(plan.source.run).find(target, plan.name)
    if known is None or known.state == "stopped":
        return None
    if known.step != plan.source.step:
        raise UsageError(
            f"{plan.name} on {target} is step {known.step}, not step {plan.source.step}; end it "
            f"(art undeploy {plan.source.run.root} {plan.name}), or choose another: --name NAME"
        )
    return known


def deploy(kind: str, target: Target, plan: Plan, report: Report, *, wait: bool) -> Deployment:
    """Deploy a checkpoint, or return the existing deployment. Resume an interrupted one.

    `kind` is the target's name. Raise ArtError, whose message names the resources left and their
    cost.
    """
    if plan.lacks:
        raise PreflightError(plan.lacks)
    store = Store(plan.source.run)
    with store.alone(kind, plan.name):
        deployment = check_name(kind, plan)
        if deployment and deployment.state == "ready":
            now = target.state(deployment)
            if plan.local and now != "stopped":
                _check_served(plan, deployment, wait=wait)
            if now == "ready":
                return _found(plan, deployment)
        if deployment is None:
            deployment = store.new(kind, plan.name, plan.source.step)
        with _told(store, deployment):
            deployment.state, deployment.message = "deploying", ""
            store.keep(deployment)
            target.deploy(plan, _job(store, deployment, report, wait=wait))
    return deployment


def _check_served(plan: Plan, deployment: Deployment, *, wait: bool) -> None:
    """Raise UsageError if the running server is not the requested one."""
    stays = deployment.made.get("stays", False)
    if stays and not wait and deployment.url == plan.url:
        return
    until = "until `art undeploy`" if stays else "as long as the command that started it"
    raise UsageError(
        f"{deployment.name} is served already: at {deployment.url}, by process "
        f"{deployment.made.get('pid')}, {until}. End it: art undeploy {plan.source.run.root} "
        f"{deployment.name}; or serve another beside it: --name NAME port=PORT"
    )


def _found(plan: Plan, deployment: Deployment) -> Deployment:
    """Return an existing deployment with the URL of the plan, because a key is sent to that URL."""
    if plan.serves:
        deployment.url, deployment.key_env = plan.url, plan.key_env
    return deployment


async def deploy_model(
    *,
    model: TrainableModel,
    deploy_to: str,
    step: int | str = "best",
    name: str | None = None,
    wait_for_completion: bool = True,
    report: Report = silent,
    **settings: Any,
) -> Deployment:
    """Deploy from Python as `art deploy` does, but without asking before it costs money.

    `settings` are those of the target in `config.targets`. A server on this machine ends with this
    process unless `wait_for_completion` is False. Raises the same errors as `deploy`.

        await art.deploy_model(model=model, deploy_to="together", base="Qwen/Qwen3-8B")
    """
    deploy_to = read_target("deploy_to=", deploy_to)
    target = make_target(deploy_to, settings)

    def bring() -> Deployment:
        source = Source.open(model.parts.run, model.experiment, model.settings, str(step))
        plan = target.plan(source, name or source.default_name)
        return deploy(deploy_to, target, plan, report, wait=wait_for_completion)

    return await asyncio.to_thread(bring)


def undeploy(store: Store, target: Target, deployment: Deployment, report: Report) -> str:
    """End a deployment and return a message about anything left. Raise ArtError."""
    with store.alone(deployment.target, deployment.name):
        left = target.undeploy(_job(store, deployment, report))
        deployment.state = "stopped"
        store.keep(deployment)
    return left


def _job(store: Store, deployment: Deployment, report: Report, *, wait: bool = True) -> Job:
    return Job(deployment=deployment, keep=lambda: store.keep(deployment), report=report, wait=wait)


@contextlib.contextmanager
def _told(store: Store, deployment: Deployment) -> Iterator[None]:
    """Record the deployment at the end. After a failure, add the resources left to the error."""
    try:
        yield
    except ArtError as e:
        deployment.state, deployment.message = "failed", str(e)
        e.args = (f"{e}\n{_left(deployment)}",)
        raise
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted.\n{_left(deployment)}") from None
    finally:
        store.keep(deployment)


def _left(deployment: Deployment) -> str:
    again = "the same command goes on from here"
    end = f"art undeploy {deployment.name} ends what there is"
    if deployment.billed_since:
        price = deployment.usd_per_hour
        each = "at a price that is not known" if price is None else f"${price:.2f} an hour"
        return f"IT MAY BE RUNNING AND COSTING MONEY, {each}: {end}; {again}"
    if deployment.made:
        kept = ", ".join(sorted(deployment.made.keys() - {"project", "sent", "seal", "port"}))
        return f"Nothing is billed. Made so far: {kept or 'nothing'}; {again}"
    return "Nothing was made, and nothing is billed."
