"""The section `backend`: the machine on which the run happens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from art_cli.config.marks import OnlyWith
from art_cli.config.rule import Rule
from art_cli.config.values import Count, Name

RENTED = OnlyWith("backend.use", ("skypilot",), "remove it, or write skypilot")


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendConfig:
    """The machine of the run: this one, or one that SkyPilot rents (extra `cloud`).

    `resources`, `envs`, `setup` and `storage` are settings of SkyPilot, checked by SkyPilot when a
    cloud command runs. `resources: {use_spot: true}` makes a managed job, which continues on
    another machine when its own is taken away.
    """

    use: Literal["local", "skypilot"] = "local"
    """This machine (local), or a cluster that `art launch-cluster` or `art run` rents
    (skypilot)."""
    cluster: Annotated[Name | None, RENTED] = None
    """The cluster's name. null: art-PROJECT."""
    resources: Annotated[dict[str, Any], RENTED] = field(default_factory=dict)
    """The resources that SkyPilot rents, for example {accelerators: "H100:1"}."""
    num_nodes: Annotated[Count, RENTED] = 1
    """The number of machines in the cluster."""
    autostop_minutes: Annotated[Count | None, RENTED] = 30
    """Minutes without work after which the cluster stops. null: it bills until you stop it."""
    workdir: Annotated[str | None, RENTED] = "."
    """The folder to copy to the cluster, except files in .gitignore. null: none."""
    envs: Annotated[dict[str, str], RENTED] = field(default_factory=dict)
    """Environment variables of the run on the cluster."""
    secrets: Annotated[list[str], RENTED] = field(default_factory=list)
    """Environment variables that are sent to the cluster and never shown, such as WANDB_API_KEY."""
    setup: Annotated[str | None, RENTED] = None
    """Shell commands for each node, after art is installed there."""
    storage: Annotated[str | dict[str, Any] | None, RENTED] = None
    """Where a managed job stores its run: a bucket ({name: my-bucket}), or a folder that all nodes
    share."""


def _spot(resources: dict[str, Any]) -> bool:
    choices = [resources, *(resources.get("any_of") or []), *(resources.get("ordered") or [])]
    return any(isinstance(choice, dict) and choice.get("use_spot") is True for choice in choices)


def _managed(resources: dict[str, Any]) -> bool:
    return _spot(resources) or "job_recovery" in resources


BACKEND_RULES = (
    Rule(
        "backend.num_nodes",
        ("train.num_processes", "engine.nodes"),
        lambda nodes, processes, serving: serving == 0 and processes % nodes != 0,
        "is {0}, but train.num_processes is {1}: each node takes the same number of processes; "
        "write a multiple of {0}",
    ),
    Rule(
        "backend.num_nodes",
        ("engine.nodes", "train.num_processes"),
        lambda nodes, serving, processes: (
            0 < serving < nodes and processes % (nodes - serving) != 0
        ),
        "is {0}, and all but {1} (engine.nodes) train, but train.num_processes is {2}: each node "
        "that trains takes the same number of processes; write a multiple of their number",
    ),
    Rule(
        "backend.storage",
        ("backend.resources",),
        lambda storage, resources: storage is None and _spot(resources),
        "is missing: a machine that may be taken away (use_spot) needs a place where its run "
        "stays, e.g. storage: {{name: my-bucket}}",
    ),
    Rule(
        "backend.storage",
        ("backend.resources", "backend.use"),
        lambda storage, resources, use: (
            storage is not None and use == "skypilot" and not _managed(resources)
        ),
        "has no effect without backend.resources.use_spot or job_recovery: a cluster's run is "
        "brought back from the cluster; remove it",
    ),
    Rule(
        "backend.cluster",
        ("backend.storage",),
        lambda cluster, storage: cluster is not None and storage is not None,
        "has no effect with backend.storage: a managed job has machines of its own; remove it",
    ),
)
