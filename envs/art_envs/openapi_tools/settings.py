"""The settings in `env.args` of an HTTP API and its tasks."""

from __future__ import annotations

from dataclasses import dataclass, field

from art_envs.tasks.with_tools import ToolTaskSettings


@dataclass(frozen=True, kw_only=True)
class OpenApiSettings(ToolTaskSettings):
    """The API, how its operations are used, and the tasks."""

    spec: str  # an OpenAPI 3 or Swagger 2 document: FILE.yaml, FILE.json or a URL
    base_url: str | None = (
        None  # what paths are added to; null: the first of the document's servers
    )
    # Names of the operations that are offered, as "findPets", "get*", or "!getUser" for one that is
    # not. null, or none but those with "!": all that only read (GET).
    operations: tuple[str, ...] | None = None
    # How calls are authenticated: a scheme of the document, and the variable of the environment
    # with its token (name:password for basic). null: calls are made without.
    auth: dict[str, str | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise ValueError where a setting cannot be."""
        super().__post_init__()
        if self.operations == ():
            raise ValueError("operations: name at least one, or leave it out for all that read")
        if self.base_url is not None and not self.base_url.startswith(("http://", "https://")):
            raise ValueError(f"base_url: expected http://... or https://..., got {self.base_url!r}")
