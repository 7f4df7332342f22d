"""Documents of Swagger 2, and those that are spread over files."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from art_cli import UsageError
from art_envs.openapi_tools.api import opened
from art_envs.openapi_tools.document import read_document
from art_envs.openapi_tools.operations import operations_of
from art_envs.openapi_tools.settings import OpenApiSettings

FORM = "application/x-www-form-urlencoded"


def built(
    document: dict[str, Any], folder: Path, settings: dict[str, Any] | None = None, **arguments: Any
) -> httpx.Request:
    """Return the request of a call of the operation `it`."""
    path = folder / "spec.json"
    path.write_text(json.dumps(document))
    least: dict[str, Any] = {"data": "x", "input": "q", "target": "a", "grade": "exact"}
    cfg = OpenApiSettings(spec=str(path), operations=("it",), **least | (settings or {}))

    async def go() -> httpx.Request:
        async with opened(cfg) as source:
            return source._request(source._operations["it"], arguments)

    return asyncio.run(go())


def swagger(
    *parameters: dict[str, Any], path: str = "/a", of: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """Return a document of Swagger 2 with one operation, `it`."""
    operation = {"operationId": "it", "parameters": list(parameters), **(of or {})}
    head = {"swagger": "2.0", "host": "api.test", "basePath": "/v2", "schemes": ["http", "https"]}
    return {**head, "paths": {path: {"post": operation}}, **more}


def listed(place: str, how: str | None = None, name: str = "p") -> dict[str, Any]:
    kind = {"collectionFormat": how} if how else {}
    required = {"required": True} if place == "path" else {}
    strings = {"type": "array", "items": {"type": "string"}}
    return {"name": name, "in": place, **strings, **kind, **required}


@pytest.mark.parametrize(
    ("place", "how", "expected"),
    [
        ("query", None, "p=a,b"),
        ("query", "csv", "p=a,b"),
        ("query", "ssv", "p=a+b"),
        ("query", "pipes", "p=a%7Cb"),
        ("query", "multi", "p=a&p=b"),
        ("path", None, "/v2/a,b"),
        ("header", "csv", "a,b"),
        ("formData", None, "p=a,b"),
        ("formData", "multi", "p=a&p=b"),
        ("formData", "pipes", "p=a%7Cb"),
    ],
)
def test_lists_of_swagger_2_are_joined_as_it_says(
    tmp_path: Path, place: str, how: str | None, expected: str
) -> None:
    document = swagger(listed(place, how), path="/{p}" if place == "path" else "/a")
    items: dict[str, Any] = {"p": ["a", "b"]}
    given: dict[str, Any] = {"body": items} if place == "formData" else items
    request = built(document, tmp_path, **given)
    found = {
        "query": request.url.query.decode().replace("%20", "+"),
        "path": request.url.raw_path.decode(),
        "header": request.headers.get("p"),
        "formData": request.read().decode(),
    }
    assert found[place] == expected and request.url.host == "api.test"


def test_bodies_files_servers_and_credentials_of_swagger_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASSWORD", "ann:secret")
    of_pet = {"$ref": "#/definitions/Pet"}
    body = {"name": "pet", "in": "body", "required": True, "schema": of_pet}
    more: dict[str, Any] = {
        "definitions": {"Pet": {"type": "object", "properties": {"next": of_pet}}},
        "parameters": {"pet": body},
        "securityDefinitions": {"login": {"type": "basic"}},
        "security": [{"login": []}],
    }
    document = swagger({"$ref": "#/parameters/pet"}, **more)
    request = built(document, tmp_path, {"auth": {"login": "PASSWORD"}}, body={"next": {}})
    assert (str(request.url), request.read()) == ("https://api.test/v2/a", b'{"next":{}}')
    assert request.headers["authorization"] == "Basic YW5uOnNlY3JldA=="
    assert request.headers["content-type"] == "application/json"
    [tool] = operations_of(read_document(str(tmp_path / "spec.json"), 1), ("it",)).values()
    assert tool.tool.parameters["required"] == ["body"]
    pet = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Pet"}}}
    assert tool.tool.parameters["$defs"] == {"Pet": pet}
    file = {"name": "photo", "in": "formData", "type": "file", "required": True}
    note = {"name": "note", "in": "formData", "type": "string", "description": "A note."}
    request = built(
        swagger(file, note, of={"schemes": ["http"]}, schemes=["https"]),
        tmp_path,
        body={"photo": "x", "note": "y"},
    )
    assert str(request.url) == "http://api.test/v2/a"
    assert 'name="photo"; filename="photo"' in request.read().decode()
    document = swagger(note, consumes=["application/json", FORM])
    request = built(document, tmp_path, body={"note": "y"})
    assert request.headers["content-type"] == FORM and request.read() == b"note=y"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (swagger(listed("query", "tsv")), "style 'tsv' of its parameter 'p' is none of a query"),
        (swagger(listed("path", "ssv"), path="/{p}"), "the style 'spaceDelimited' of its"),
        (swagger(listed("query", "odd")), "the collectionFormat of 'p' is 'odd', none of csv, ssv"),
        (swagger(listed("formData", "tsv")), "the items of its field 'p' are separated by tabs"),
        (
            swagger({**listed("query"), "items": {"type": "array", "items": {}}}),
            "its parameter 'p' is a list of lists",
        ),
        (
            swagger({"name": "a", "in": "body", "schema": {}}, listed("formData")),
            "it has more than one body; leave it out with",
        ),
        (
            swagger({"name": "a", "in": "body"}, consumes=["application/xml"]),
            "it takes application/xml, and only JSON",
        ),
        (swagger(schemes=["wss"]), "servers: 'wss://api.test/v2' is no URL; give env.args"),
        (swagger(host=None), "servers: '/v2' is no URL; give env.args.base_url"),
    ],
)
def test_what_swagger_2_says_that_cannot_be_sent_is_refused_with_its_place(
    tmp_path: Path, document: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError) as raised:
        built(document, tmp_path)
    assert message in str(raised.value) and str(tmp_path / "spec.json") in str(raised.value)


def test_a_document_may_be_spread_over_files(tmp_path: Path) -> None:
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas/owner.yaml").write_text(
        yaml.safe_dump(
            {
                "Owner": {
                    "type": "object",
                    "properties": {
                        "pet": {"$ref": "../pet.yaml#/Pet"},
                        "boss": {"$ref": "#/Owner"},
                        "kind": {"$ref": "../spec.json#/components/schemas/Kind"},
                    },
                }
            }
        )
    )
    (tmp_path / "pet.yaml").write_text("Pet: {type: object, properties: {name: {type: string}}}\n")
    (tmp_path / "paths.json").write_text(
        json.dumps({"get": {"operationId": "it", "parameters": [{"$ref": "where.yaml"}]}})
    )
    (tmp_path / "where.yaml").write_text(
        "name: owner\nin: query\nstyle: deepObject\nschema: {$ref: schemas/owner.yaml#/Owner}\n"
    )
    kind = {"type": "integer", "minimum": 0, "exclusiveMinimum": True}
    document = {
        "openapi": "3.0.0",
        "servers": [{"url": "http://api.test"}],
        "paths": {"/a": {"$ref": "paths.json"}},
        "components": {"schemas": {"Kind": kind}},
    }
    request = built(document, tmp_path, owner={"pet": {"name": "Rex"}})
    assert request.url.params["owner[pet][name]"] == "Rex"
    [it] = operations_of(read_document(str(tmp_path / "spec.json"), 1), ("it",)).values()
    defs = it.tool.parameters["$defs"]
    assert defs["Kind"] == {"type": "integer", "exclusiveMinimum": 0}
    assert defs["pet.yaml.Pet"]["properties"] == {"name": {"type": "string"}}
    owner = defs["schemas.owner.yaml.Owner"]["properties"]
    assert owner["boss"] == {"$ref": "#/$defs/schemas.owner.yaml.Owner"}


def test_data_in_a_schema_is_left_alone(tmp_path: Path) -> None:
    data = {"$ref": "#/no/where", "exclusiveMinimum": True}
    schema = {"type": "object", "default": data, "x-note": data}
    schema |= {"properties": {"default": {"enum": [data]}}}
    parameter = {"name": "p", "in": "query", "style": "deepObject", "schema": schema}
    document = {"openapi": "3.1.0", "servers": [{"url": "http://a.test"}]}
    document |= {"paths": {"/a": {"get": {"operationId": "it", "parameters": [parameter]}}}}
    built(document, tmp_path)
    [it] = operations_of(read_document(str(tmp_path / "spec.json"), 1), ("it",)).values()
    assert it.tool.parameters["properties"]["p"] == schema


def test_arguments_of_one_name_stay_apart(tmp_path: Path) -> None:
    names = [("id", "path"), ("id", "query"), ("id_query", "query"), ("id", "header")]
    parameters = [{"name": name, "in": place} for name, place in (*names, ("body", "query"))]
    body = {"content": {"text/plain": {}}}
    operation = {"operationId": "it", "parameters": parameters, "requestBody": body}
    document = {"openapi": "3.1.0", "servers": [{"url": "http://a.test"}]}
    document |= {"paths": {"/{id}": {"post": operation}}}
    built(document, tmp_path, id="1")
    [it] = operations_of(read_document(str(tmp_path / "spec.json"), 1), ("it",)).values()
    arguments = [p.argument for p in it.parameters]
    assert len(set(arguments)) == 6 and [*it.tool.parameters["properties"]] == arguments
