"""Typed shapes of the parts of a document, against which these are validated."""

from __future__ import annotations

from typing import Any, Required, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

Schema = dict[str, Any] | bool
OPEN = with_config(ConfigDict(extra="allow", coerce_numbers_to_str=True))
Known = TypeVar("Known")


@OPEN
class Variable(TypedDict, total=False):
    """A variable in the URL of a server."""

    default: str


@OPEN
class Server(TypedDict, total=False):
    """The address of an API."""

    url: str
    variables: dict[str, Variable] | None


@OPEN
class Encoding(TypedDict, total=False):
    """The encoding of a form's field."""

    style: str
    explode: bool


@OPEN
class Media(TypedDict, total=False):
    """A body of one content type."""

    schema: Schema | None
    encoding: dict[str, Encoding] | None


@OPEN
class RequestBody(TypedDict, total=False):
    """The bodies that an operation takes, by content type."""

    content: dict[str, Any] | None
    required: bool | None


@OPEN
class AnyParameter(TypedDict, total=False):
    """A parameter of OpenAPI 3 or Swagger 2."""

    name: Required[str]
    style: str | None
    explode: bool | None
    required: bool | None
    description: str | None
    schema: Schema | None
    content: dict[str, Media] | None
    type: Any
    items: Any
    collectionFormat: str


@OPEN
class AnyOperation(TypedDict, total=False):
    """An operation of OpenAPI 3 or Swagger 2."""

    operationId: str | None
    summary: str | None
    description: str | None
    parameters: list[Any] | None
    security: list[dict[str, Any]] | None
    servers: list[Any] | None
    consumes: list[str] | None
    schemes: list[str] | None


@OPEN
class PathItem(TypedDict, total=False):
    """The operations of a path."""

    summary: str | None
    parameters: list[Any] | None
    servers: list[Any] | None


@OPEN
class Scheme(TypedDict, total=False):
    """The authentication of calls."""

    type: Required[str]
    name: str
    scheme: str


@OPEN
class Components(TypedDict, total=False):
    """The shared parts of a document."""

    securitySchemes: dict[str, Any] | None


@OPEN
class Root(TypedDict, total=False):
    """A document of OpenAPI 3 or Swagger 2."""

    paths: dict[str, Any] | None
    servers: list[Any] | None
    security: list[dict[str, Any]] | None
    components: Components | None
    host: str | None
    basePath: str | None
    schemes: list[str] | None
    consumes: list[str] | None
    securityDefinitions: dict[str, Any] | None


_adapters: dict[type, TypeAdapter[Any]] = {}


def shaped(shape: type[Known], value: Any) -> Known:
    """Return a value of this shape without nulls. Raise ValueError with the path of an error.

    The message is ".NAME...: why", to be appended to the path of the value.
    """
    adapter = _adapters.setdefault(shape, TypeAdapter(shape))
    try:
        found: Any = adapter.validate_python(value)
    except ValidationError as e:
        first = e.errors()[0]
        way = "".join(f".{part}" for part in first["loc"])
        raise ValueError(f"{way}: {first['msg']}") from None
    return {key: each for key, each in found.items() if each is not None}  # type: ignore[return-value]
