"""Operations of a real HTTP API on a loopback port, from a document of six hundred."""

import asyncio
import contextlib
import json
import re
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from hypothesis import given
from hypothesis import settings as settings_of
from hypothesis import strategies as st
from pet_api import PETS, PetApi, document
from spoken import Says, call

from art_cli import InvalidCallError, ToolError, UsageError
from art_cli.config.load import load_env
from art_cli.envs.registry import env_class
from art_cli.errors import ConfigError
from art_cli.preflight.envs.check import check
from art_cli.preflight.envs.subject import Options
from art_cli.rollout.first_episode import check_env
from art_cli.rollout.rollout import rollout
from art_envs.openapi_tools.api import opened
from art_envs.openapi_tools.document import Document, read_document
from art_envs.openapi_tools.env import OpenApiTools
from art_envs.openapi_tools.operations import _named
from art_envs.openapi_tools.settings import OpenApiSettings
from art_envs.tasks.with_tools import ServerError

OPEN = {"token": None}


@pytest.fixture(scope="module")
def api() -> Iterator[PetApi]:
    with PetApi() as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path, api: PetApi) -> Path:
    api.write(tmp_path)
    rows = [{"question": f"How is pet {i} called?", "answer": f"Pet {i}"} for i in range(9)]
    rows += [{"question": f"How are pet {i} and {i} called?", "answer": "x"} for i in range(40)]
    (tmp_path / "tasks.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return tmp_path


def settings(folder: Path, api: PetApi, **args: Any) -> OpenApiSettings:
    known = {"input": "question", "target": "answer", "grade": "exact", "auth": OPEN}
    known |= {"spec": str(folder / "pets.json"), "base_url": api.url}
    return OpenApiSettings(**known | {"data": str(folder / "tasks.jsonl")} | args)


def called(cfg: OpenApiSettings, *calls: tuple[str, dict[str, Any]]) -> list[str | Exception]:
    """Return what each call of an API gives, or raises."""

    async def go() -> list[str | Exception]:
        out: list[str | Exception] = []
        async with opened(cfg) as source:
            for name, arguments in calls:
                try:
                    out.append(await source.call(name, arguments))
                except (ToolError, ServerError) as e:
                    out.append(e)
        return out

    return asyncio.run(go())


def offered(cfg: OpenApiSettings) -> dict[str, Any]:
    async def go() -> dict[str, Any]:
        async with opened(cfg) as source:
            return {tool.name: tool for tool in source.tools}

    return asyncio.run(go())


def test_an_episode_calls_operations_and_is_graded_by_its_words(folder: Path, api: PetApi) -> None:
    cfg = settings(folder, api, operations=("findPets", "pets_get"))
    scenario = next(s for s in OpenApiTools.scenarios(cfg, "train") if "Pet 3" in s.data["targets"])
    turns = (call("findPets", status="free"), call("pets_get", petId="3"), "Pet 3")
    played = asyncio.run(rollout(OpenApiTools, cfg, scenario, Says(*turns)))
    assert (played.error, played.reward) == (None, 1.0)
    free = [pet for pet in PETS.values() if pet["status"] == "free"]
    assert json.loads(str(played.steps[0].result)) == free
    assert json.loads(str(played.steps[1].result)) == PETS["3"]
    find, get = (tool["function"] for tool in played.tools)
    assert find["description"] == "List pets by status."
    assert find["parameters"]["properties"]["status"]["enum"] == ["sold", "free"]
    assert get["parameters"]["required"] == ["petId"]
    assert get["parameters"]["properties"]["petId"] == {"type": "string", "example": "3"}


def test_which_operations_are_offered(folder: Path, api: PetApi) -> None:
    reads = offered(settings(folder, api))
    assert len(reads) == 306 and not any(tool.writes for tool in reads.values())
    assert "createPet" not in reads and "pets_get" in reads
    some = offered(settings(folder, api, operations=("*Pet*", "!delete*", "putThing7")))
    assert list(some) == ["findPets", "createPet", "putThing7"]
    assert [tool.writes for tool in some.values()] == [False, True, True]
    assert len(offered(settings(folder, api, operations=("!getThing*",)))) == 6
    # What it needs, and no more, though schemas contain themselves and each other.
    pet = some["createPet"].parameters
    assert pet["properties"]["body"] == {"$ref": "#/$defs/Pet"} and pet["required"] == ["body"]
    assert pet["$defs"]["Pet"]["properties"]["parent"] == {"$ref": "#/$defs/Pet"}
    assert "Thing0" in pet["$defs"] and len(pet["$defs"]) < 302


def test_where_arguments_go(folder: Path, api: PetApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PETS_KEY", "k 1")
    monkeypatch.setenv("PETS_LOGIN", "ann:secret")
    auth = {"key": "PETS_KEY", "basic": "PETS_LOGIN", "token": None}
    cfg = settings(folder, api, operations=("echo", "putThing7"), auth=auth)
    arguments = {"id": "../a b?", "id_query": 7, "tags": ["x", "y"], "ids": [1, 2], "X-Trace": "t"}
    first, second = called(
        cfg,
        ("echo", arguments | {"deep": {"from": 1, "to": "z"}}),
        ("putThing7", {"id": "1", "body": {"note": "ü"}}),
    )
    _, path, query, headers, _ = api.asked[-2]
    assert path == "/echo/..%2Fa%20b%3F" and "Authorization" not in offered(cfg)["echo"].parameters
    assert query == [
        *(("id", "7"), ("tags", "x"), ("tags", "y"), ("ids", "1,2")),
        *(("deep[from]", "1"), ("deep[to]", "z")),
    ]
    assert (headers["x-trace"], headers["x-key"]) == ("t", "k 1")
    assert headers["authorization"] == "Basic YW5uOnNlY3JldA=="
    assert json.loads(str(second)) == {
        "method": "PUT",
        "path": "/things/7/1",
        "body": {"note": "ü"},
    }
    assert "k 1" not in str(first)
    called(settings(folder, api, auth={"inQuery": "PETS_KEY"}), ("echo", {"id": "1"}))
    assert api.asked[-1][2] == [("api_key", "k 1")]


def test_what_a_call_that_fails_says(folder: Path, api: PetApi) -> None:
    cfg = settings(folder, api, max_result=200, call_timeout=2.0)
    cases = (
        (
            "pets_get",
            {"petId": "77"},
            ToolError,
            '404 Not Found: {"error": "there is no such pet"}',
        ),
        ("pets_get", {"petid": "7"}, ToolError, "no argument 'petid'. Did you mean 'petId'?"),
        ("pets_get", {}, ToolError, "pets_get needs petId"),
        ("pets_get", {"petId": ".."}, ToolError, "petId must not be '..'"),
        ("echo", {"id": "1", "X-Trace": "a\nB: c"}, ToolError, "printable ASCII on one line"),
        ("odd", {"how": "500"}, ToolError, "500 Internal"),
        ("odd", {"how": "302"}, ToolError, "302 Found"),
        ("odd", {"how": "429"}, ServerError, "/odd answered 429"),
        ("odd", {"how": "slow"}, ServerError, "not answer within 2 s (env.args.call_timeout)"),
        ("odd", {"how": "huge"}, str, "are not shown)\n... (only 4194304 bytes were read)"),
        ("odd", {}, str, "[image/png, 4 bytes]"),
    )
    given = called(cfg, *((name, arguments) for name, arguments, _, _ in cases))
    for got, (_, _, kind, text) in zip(given, cases, strict=True):
        assert isinstance(got, kind) and text in str(got), got
    [gone] = called(settings(folder, api, base_url="http://127.0.0.1:9"), ("odd", {}))
    assert isinstance(gone, ServerError) and "GET http://127.0.0.1:9/odd failed: Conn" in str(gone)


def test_mistakes_are_told_with_their_place(
    folder: Path, api: PetApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    for args, message in (
        ({"spec": "no.yaml"}, "there is no file 'no.yaml'"),
        ({"spec": "http://127.0.0.1:9/x"}, "127.0.0.1:9/x cannot be fetched"),
        ({"operations": ("findPet",)}, r"has no operation 'findPet'; .* Did you mean 'findPets'\?"),
        ({"operations": ("!*",)}, "no operation is offered"),
        ({"auth": {}}, r"pets.json: paths./echo/{id}.get: it needs key and basic or token or inQ"),
        ({"auth": {"tokn": None}}, "has no scheme 'tokn'; .* Did you mean 'token'"),
        ({"auth": {"token": "NOT_SET"}}, "env.args.auth.token: the variable NOT_SET is not set"),
    ):
        with pytest.raises(UsageError, match=message):
            asyncio.run(check_env(OpenApiTools, settings(folder, api, **args)))
    for more, message in (
        (["operations=[]"], "name at least one"),
        (["base_url=pets.test"], "expected http://"),
    ):
        least = ["spec=x.yaml", "data=x.jsonl", "input=q", "target=a", "grade=exact"]
        with pytest.raises(ConfigError, match=message):
            use = "art_envs.openapi_tools.env:OpenApiTools"
            load_env(use, [*least, *more], lambda use: env_class(use).Config)


def ops(**operation: Any) -> dict[str, Any]:
    found = {"openapi": "3.0.3", "servers": [{"url": "http://x"}]}
    return found | {"paths": {"/a/{b}": {"get": operation}}}


HAS_B = [{"name": "b", "in": "path"}]
XML = {"content": {"application/xml": {}}}
ELSEWHERE = {"$ref": "other.yaml#/Pet"}
BROKEN: list[tuple[Any, str]] = [
    ("a: [", "neither JSON nor YAML: line 2: did not find"),
    ("a: 1\nb: {c: 1, c: 2}", "line 2: the key 'c' is given twice"),
    ('{"a": 1, "a": 2}', "the key 'a' is given twice"),
    ("{", "neither JSON nor YAML"),
    ({"swagger": "1.2"}, r"expected an OpenAPI document \(openapi: 3.x, or swagger: 2.0\)"),
    (ops(), r"paths./a/{b}.get: its path has 'b', which is none of its parameters"),
    (ops(parameters=[{}]), "paths./a/{b}.get: a parameter without name and in"),
    (ops(parameters=[ELSEWHERE]), r"its \$ref 'other.yaml#/Pet' names no file below /"),
    (
        ops(parameters=[{"$ref": "../x.yaml"}]),
        r"'../x.yaml' leaves the folder of the document; put",
    ),
    (ops(parameters=[{"$ref": "/etc/passwd"}]), "'/etc/passwd' leaves the folder of the document"),
    (ops(parameters=[{"$ref": "http://x/y#/a"}]), "'http://x/y#/a' is behind a URL; put all into"),
    (ops(parameters=[{"$ref": "#/no/1"}]), r"its \$ref '#/no/1' names nothing"),
    (ops(parameters=[{"$ref": "#/paths/~1a~1{b}/get/parameters/0"}]), "goes round in a circle"),
    (
        ops(parameters=HAS_B, requestBody=XML),
        'takes application/xml, .* leave it out with "!get_a_b" in env.args',
    ),
    (ops(parameters=[{"name": "s", "in": "body"}]), "'s' is in 'body'; expected path, query, "),
    (
        ops(parameters=[{"name": "b", "in": "path", "style": "form"}]),
        r"the style 'form' of its parameter 'b' is none of a path \(simple, label, matrix\)",
    ),
    ({**ops(parameters=HAS_B), "servers": [{"url": "/v1"}]}, "'/v1' is no URL; give env.args.base"),
]


@pytest.mark.parametrize(("text", "message"), BROKEN, ids=[message[:30] for _, message in BROKEN])
def test_a_document_with_a_mistake(folder: Path, api: PetApi, text: Any, message: str) -> None:
    path = folder / "broken.yaml"
    path.write_text(text if isinstance(text, str) else yaml.safe_dump(text))
    with pytest.raises(UsageError, match=message):
        offered(settings(folder, api, spec=str(path), base_url=None, auth={}))


def one(path: str = "/a", **operation: Any) -> dict[str, Any]:
    return ops_at({path: {"post": {"operationId": "it", **operation}}})


def ops_at(paths: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"openapi": "3.1.0", "servers": [{"url": "http://127.0.0.1:1"}], "paths": paths, **more}


def sent(document: dict[str, Any], folder: Path, **arguments: Any) -> httpx.Request:
    """Build the request for the document's only operation, called `it`, with these arguments."""
    path = folder / "one.json"
    path.write_text(json.dumps(document))
    least: dict[str, Any] = {"data": "x", "input": "q", "target": "a", "grade": "exact"}
    cfg = OpenApiSettings(spec=str(path), operations=("it",), **least)

    async def go() -> httpx.Request:
        async with opened(cfg) as source:
            return source._request(source._operations["it"], arguments)

    return asyncio.run(go())


LIST, OBJECT = ["a/b", "c;d"], {"R": 100, "G": "x y"}
STYLES = [  # OpenAPI 3.1.1, 4.8.12.6: (place, style, explode, of a list, of an object)
    ("query", "form", True, "p=a%2Fb&p=c%3Bd", "R=100&G=x+y"),
    ("query", "form", False, "p=a%2Fb,c%3Bd", "p=R,100,G,x+y"),
    ("query", "spaceDelimited", False, "p=a%2Fb+c%3Bd", None),
    ("query", "pipeDelimited", False, "p=a%2Fb%7Cc%3Bd", "p=R%7C100%7CG%7Cx+y"),
    ("query", "deepObject", True, "p=a%2Fb&p=c%3Bd", "p%5BR%5D=100&p%5BG%5D=x+y"),
    ("path", "simple", False, "/a%2Fb,c%3Bd", "/R,100,G,x%20y"),
    ("path", "simple", True, "/a%2Fb,c%3Bd", "/R=100,G=x%20y"),
    ("path", "label", False, "/.a%2Fb,c%3Bd", "/.R,100,G,x%20y"),
    ("path", "label", True, "/.a%2Fb.c%3Bd", "/.R=100.G=x%20y"),
    ("path", "matrix", False, "/;p=a%2Fb,c%3Bd", "/;p=R,100,G,x%20y"),
    ("path", "matrix", True, "/;p=a%2Fb;p=c%3Bd", "/;R=100;G=x%20y"),
    ("header", "simple", False, "a/b,c;d", "R,100,G,x y"),
    ("header", "simple", True, "a/b,c;d", "R=100,G=x y"),
    ("cookie", "form", False, "p=a%2Fb%2Cc%3Bd", "p=R%2C100%2CG%2Cx%20y"),
]


@pytest.mark.parametrize(("place", "style", "explode", "of_list", "of_object"), STYLES)
@pytest.mark.parametrize("named", [True, False])
def test_each_style_is_written_as_openapi_says(
    tmp_path: Path,
    place: str,
    style: str,
    explode: bool,
    of_list: str,
    of_object: str | None,
    named: bool,
) -> None:
    how = {"style": style, "explode": explode} if named else {}
    if not named and (style, explode) not in {("form", True), ("simple", False)}:
        pytest.skip("not what holds where none is named")
    parameter = {"name": "p", "in": place, **how}
    document = one("/{p}" if place == "path" else "/a", parameters=[parameter])
    for value, expected in ((LIST, of_list), (OBJECT, of_object)):
        if expected is None:
            with pytest.raises(InvalidCallError, match="' ' separates its parts, so none can have"):
                sent(document, tmp_path, p=value)
            continue
        request = sent(document, tmp_path, p=value)
        found = {
            "query": request.url.query.decode(),
            "path": request.url.raw_path.decode(),
            "header": request.headers.get("p"),
            "cookie": request.headers.get("cookie"),
        }
        assert str(found[place]).replace("%20", "+" if place == "query" else "%20") == expected


def test_a_parameter_with_content_is_json_whatever_it_is(tmp_path: Path) -> None:
    content = {"application/json": {"schema": {"type": ["string", "object"]}}}
    document = one(parameters=[{"name": "p", "in": "query", "content": content}])
    for value in ("x", {"a": [1]}, [1, None], 2):
        [(_, text)] = sent(document, tmp_path, p=value).url.params.multi_items()
        assert json.loads(text) == value


def test_bodies_are_sent_as_the_document_says(tmp_path: Path) -> None:
    def body(kind: str, **media: Any) -> dict[str, Any]:
        return one(requestBody={"content": {kind: media}})

    request = sent(body("text/markdown"), tmp_path, body="# ü")
    assert (request.content.decode(), request.headers["content-type"]) == ("# ü", "text/markdown")
    form = "application/x-www-form-urlencoded"
    fields = {"tags": ["x", "y"], "deep": {"a": 1}, "n": 2}
    request = sent(body(form), tmp_path, body=fields)
    assert request.content == b"tags=x&tags=y&deep=%7B%22a%22%3A+1%7D&n=2"
    encoding = {"tags": {"style": "pipeDelimited"}, "deep": {"style": "deepObject"}}
    request = sent(body(form, encoding=encoding), tmp_path, body=fields)
    assert request.content == b"tags=x%7Cy&deep%5Ba%5D=1&n=2"
    properties = {"file": {"type": "string", "format": "binary"}, "note": {"type": "string"}}
    schema = {"type": "object", "properties": properties}
    request = sent(
        body("multipart/form-data", schema=schema), tmp_path, body={"file": "a", "note": "b"}
    )
    said = request.read().decode()
    assert 'name="file"; filename="file"' in said and 'name="note"\r\n\r\nb' in said
    with pytest.raises(ToolError, match="must be an object, with the fields of the form"):
        sent(body(form), tmp_path, body="a=1")


def test_a_server_of_an_operation_is_asked_where_the_user_names_no_other(
    tmp_path: Path, api: PetApi
) -> None:
    own = [{"url": "https://uploads.example/v2"}]
    document = one(servers=own)
    assert str(sent(document, tmp_path).url) == "https://uploads.example/v2/a"
    by_path = ops_at({"/a": {"servers": own, "post": {"operationId": "it"}}})
    assert str(sent(by_path, tmp_path).url) == "https://uploads.example/v2/a"
    cfg = settings(tmp_path, api, spec=str(tmp_path / "one.json"), operations=("it",), auth={})
    with pytest.raises(UsageError, match=r'it is at https://uploads.example/v2, .* "!it" in env'):
        offered(cfg)


LONG = "dataPlaneProjectsLocationsRepositoriesWorkspacesSearchFilesByConte"


@pytest.mark.parametrize(
    ("first", "second", "names"),
    [
        (f"{LONG}ntV1", f"{LONG}ntV2", [LONG[:64], f"{LONG[:62]}_2"]),
        ("user.list", "user/list", ["user_list", "user_list_2"]),
        ("user.list", "user_list", ["user_list_2", "user_list"]),
        ("列出用户", "列出订单", ["get_a", "get_b"]),
        ("list", "list", ["list", "list_2"]),
        ("list", "list_2", ["list", "list_2"]),
    ],
)
def test_names_that_clash_are_told_apart(
    tmp_path: Path, api: PetApi, first: str, second: str, names: list[str]
) -> None:
    paths = {"/a": {"get": {"operationId": first}}, "/b": {"get": {"operationId": second}}}
    path = tmp_path / "two.json"
    path.write_text(json.dumps(ops_at(paths)))

    def tools(*patterns: str) -> list[str]:
        least = {"spec": str(path), "auth": {}, "operations": patterns or None}
        return list(offered(settings(tmp_path, api, **least)))

    assert tools() == names
    assert tools(names[1]) == names[1:]
    if first != second:
        assert tools(second) == names[1:] and tools(f"!{second}") == names[:1]


@given(st.lists(st.text(max_size=80) | st.sampled_from([LONG, f"{LONG}x", "a.b", "a/b", "a_b"])))
@settings_of(deadline=None, max_examples=100)
def test_every_operation_has_a_name_of_its_own(ids: list[str]) -> None:
    paths = {f"/{i}": {"get": {"operationId": id}} for i, id in enumerate(ids)}
    found = _named(Document("x", ops_at(paths)))
    assert [operation.id for operation in found.values()] == ids
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in found)


def test_what_yaml_1_1_takes_for_something_else_is_text(tmp_path: Path, api: PetApi) -> None:
    (tmp_path / "spec.yaml").write_text(
        "openapi: 3.1.0\ninfo: {version: 2024-01-02}\npaths:\n  /a:\n    get:\n"
        "      operationId: it\n      parameters:\n"
        "      - name: p\n        in: query\n"
        "        schema: {enum: [SE, NO, on, off, y, 12:30, 1_000, 0777, 1e3]}\n"
        "      - {name: day, in: query, schema: {type: string, example: 2024-01-31}}\n"
        "      responses: {200: {}}\n"
    )
    spec = settings(tmp_path, api, spec=str(tmp_path / "spec.yaml"), auth={})
    found = offered(spec)["it"].parameters["properties"]
    assert found["p"]["enum"] == ["SE", "NO", "on", "off", "y", "12:30", "1_000", 777, 1000.0]
    assert found["day"]["example"] == "2024-01-31"
    json.dumps(found)


def test_a_server_that_is_busy_is_asked_again_when_it_says(folder: Path, api: PetApi) -> None:
    cfg = settings(folder, api, call_timeout=20.0)
    before = len(api.asked)
    assert called(cfg, ("odd", {"how": "busy"}))[0] == '"at last"'
    assert [asked[1] for asked in api.asked[before:]] == ["/odd"] * 3
    before = len(api.asked)  # a write that got a 503 may have been done
    for name, times in (("echo503", 2), ("write503", 1)):
        [answer] = called(settings(folder, api, operations=(name,), call_timeout=20.0), (name, {}))
        assert isinstance(answer, ServerError) == (times == 1)
        assert len(api.asked) - before == times
        before = len(api.asked)
    # One that asks for more time than the call has left is not waited for.
    [late] = called(settings(folder, api, call_timeout=50.0), ("odd", {"how": "busy for long"}))
    assert isinstance(late, ServerError)
    assert "answered 429 Too Many Requests (and asks for another 60 s)" in str(late)


def test_a_page_that_is_followed_by_another_says_so(folder: Path, api: PetApi) -> None:
    first, second = called(
        settings(folder, api), ("odd", {"how": "page"}), ("odd", {"how": "page2"})
    )
    assert first == '["page"]\n... (there is another page: how=page2, cursor=abc)'
    assert second == '["page2"]\n... (there is another page: cursor=abc)'


def test_a_document_behind_a_url_is_read_once_and_quickly(api: PetApi) -> None:
    api.text = json.dumps(document() | {"servers": [{"url": "/"}]})
    least: dict[str, Any] = {"data": "x", "input": "q", "target": "a", "grade": "exact"}
    cfg = OpenApiSettings(spec=f"{api.url}/openapi.json", auth=OPEN, **least)
    before = len(api.asked)
    began = time.process_time()
    for _ in range(3):
        assert "Pet 3" in str(called(cfg, ("pets_get", {"petId": "3"}))[0])
    assert sum(ask[1] == "/openapi.json" for ask in api.asked[before:]) == 1
    assert time.process_time() - began < 3


@pytest.mark.slow
def test_the_env_passes_its_check(folder: Path, api: PetApi) -> None:
    cfg = settings(folder, api, operations=("findPets", "pets_get"), val_share=0.3, test_share=0.3)
    name = "art_envs.openapi_tools.env:OpenApiTools"
    found = list(check(name, env_class(name), cfg, Options(episodes=2)))
    assert [f for f in found if f.status == "failed"] == [], found
    assert "2 in an episode: findPets, pets_get" in [f.what for f in found]


def test_a_document_that_drips_is_given_up_at_its_limit() -> None:
    """Each byte comes in time; the whole never does."""
    ended = threading.Event()

    class Dripping(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            with contextlib.suppress(OSError):
                while not ended.wait(0.05):
                    self.wfile.write(b" ")
                    self.wfile.flush()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Dripping) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/openapi.json"
        began = time.monotonic()
        try:
            with pytest.raises(UsageError, match=r"not read within 1 s \(env.args.start_timeout\)"):
                read_document(url, 1.0)
        finally:
            ended.set()
            server.shutdown()
        assert time.monotonic() - began < 60


def test_half_a_surrogate_pair_in_an_argument_is_the_callers_mistake(
    folder: Path, api: PetApi
) -> None:
    cfg = settings(folder, api)
    half = "\ud800"
    found = called(cfg, ("pets_get", {"petId": half}), ("findPets", {"status": half}))
    assert all(isinstance(each, ToolError) for each in found), found
    assert all("surrogates not allowed" in str(each) for each in found)
