"""The settings in `env.args` of an HTTP API and its tasks."""

from __future__ import annotations

from dataclasses import dataclass, field

from art_envs.tasks.with_tools import ToolTaskSettings


@dataclass(frozen=True, kw_only=True)
class OpenApiSettings(ToolTaskSettings):
    """The API, how its operations are used, and the tasks."""

    spec: str  # an OpenAPI 3 or Swagger 2 document: FILE.yaml, FILE.json or a URL
    base_url: str | None = None  # base URL of paths; null: the first of the document's servers
    # Names of the offered operations, such as "findPets" or "get*", and "!getUser" to exclude one.
    # If null, or if all begin with "!": all that only read (GET).
    operations: tuple[str, ...] | None = None
    # Authentication of calls: a scheme of the document, and the environment variable with its token
    # (name:password for basic). null: no authentication.
    auth: dict[str, str | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise ValueError for an invalid setting."""
        super().__post_init__()
        if self.operations == ():
            raise ValueError("operations: name at least one, or leave it out for all that read")
        if self.base_url is not None and not self.base_url.startswith(("http://", "https://")):
            raise ValueError(f"base_url: expected http://... or https://..., got {self.base_url!r}")
