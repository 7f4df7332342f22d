"""Makes each thing of a deployment once, although answers get lost and processes are killed.

That a thing is asked for is kept before it is, and its id as soon as that is known. What was asked
for and has no id may be there all the same: it is looked for by its name before it is asked for
again. What has the name without having been asked for is somebody else's, and stays so.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from art_cli.deploy.base import Deployment
from art_cli.deploy.targets.together.api import CONFLICT, GONE, ApiError, TogetherAPI, Unanswered
from art_cli.errors import ArtError, UsageError

ID = re.compile(r"[A-Za-z0-9_-]+")
TRIES = 4  # at making one thing whose answers are lost


class MadeOnce:
    """For one deployment at Together."""

    def __init__(self, api: TogetherAPI, deployment: Deployment, keep: Callable[[], None]) -> None:
        self._api = api
        self._deployment = deployment
        self._keep = keep

    def make(self, kind: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Return what was made, now or before.

        Raises UsageError where someone else's has the name.
        """
        made, asked = self._deployment.made, self._deployment.asked
        if kind in made:
            return self._api.get(f"{path}/{made[kind]}")
        lost = kind in asked
        if not lost:
            asked.append(kind)
            self._keep()
        for attempt in range(TRIES):
            if lost and (found := self.find(kind, path, body["name"])):
                return found
            try:
                return self._keep_id(kind, self._api.send("POST", path, body))
            except Unanswered:
                if attempt == TRIES - 1:
                    raise
                lost = True
            except ApiError as e:
                asked.remove(kind)
                self._keep()
                if e.status == CONFLICT:
                    raise UsageError(
                        f"there is another {kind} named {body['name']} at Together ({e}); choose "
                        "a name: --name NAME"
                    ) from None
                raise
        raise AssertionError

    def find(self, kind: str, path: str, name: str) -> dict[str, Any] | None:
        """Return the one of this name, which is then known."""
        for each in self._api.list(path):
            if each["name"].rsplit("/", 1)[-1] == name:
                return self._keep_id(kind, each)
        return None

    def _keep_id(self, kind: str, thing: dict[str, Any]) -> dict[str, Any]:
        self._deployment.made[kind] = thing["id"]
        self._keep()
        return thing


def forget(deployment: Deployment, kind: str) -> None:
    """Note that what was made of a kind is gone."""
    del deployment.made[kind]
    deployment.asked.remove(kind)


def ids_of(deployment: Deployment) -> dict[str, str]:
    """Return the service's ids. Raise ArtError where one is none: it would be another address."""
    kinds = ("project", "model", "endpoint", "deployment")
    found = {kind: deployment.made[kind] for kind in kinds if kind in deployment.made}
    for kind, value in found.items():
        if not ID.fullmatch(value):
            raise ArtError(f"the record of {deployment.name}: {value!r} is no {kind} at Together")
    return found


def check_named(api: TogetherAPI, deployment: Deployment) -> None:
    """Raise ArtError where a record's ids are those of something of another name."""
    ids = ids_of(deployment)
    for kind in sorted(ids.keys() & {"model", "endpoint"}):
        try:
            named = api.get(f"/v2/projects/{ids['project']}/{kind}s/{ids[kind]}")["name"]
        except ApiError as e:
            if e.status != GONE:
                raise
            continue
        if named.rsplit("/", 1)[-1] != deployment.name:
            raise ArtError(
                f"the record of {deployment.name} names the {kind} {ids[kind]}, which is {named}; "
                "look at both, and end what you do not need at Together itself"
            )
