"""Keys are found in every form, also in a stream, and words that are no keys stay."""

from __future__ import annotations

import base64
import html
import io
import json
import re
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest

from art_cli import keys
from art_cli.keys import (
    KeyFilter,
    MaskedOutput,
    holds_key,
    mask_keys,
    mask_keys_in,
    register_environment,
    register_key,
    short_repr,
)

KEY = 'Zq7/pX"w+K9v=Rt2m'
NAME = "${oc.env:ART_X}"


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_given", "_found"):
        monkeypatch.setattr(keys, name, {})
    monkeypatch.setattr(keys, "_known", keys._Forms({}, 0))


@pytest.mark.parametrize(
    "text",
    [
        *(KEY, KEY.upper(), KEY.lower(), repr(KEY), json.dumps(KEY), json.dumps(json.dumps(KEY))),
        *(quote(KEY), quote(KEY, safe=""), quote_plus(KEY), html.escape(KEY)),
        *(base64.b64encode(b"x" * n + KEY.encode() + b"tail").decode() for n in range(7)),
        base64.urlsafe_b64encode(b"user:" + KEY.encode()).decode(),
    ],
)
def test_a_key_is_masked_in_every_form(text: str) -> None:
    register_key(KEY, NAME)
    shown = mask_keys(f"before {text} after")
    assert NAME in shown and shown.startswith("before ") and shown.endswith(" after")
    assert holds_key(text) and not holds_key("before after")


@pytest.mark.parametrize("key", ["grüße-aus-köln", "ключ-от-двери", "鍵鍵鍵鍵鍵鍵鍵鍵"])
def test_a_key_may_have_any_letters(key: str) -> None:
    register_key(key, NAME)
    for text in (key, key.upper(), json.dumps(key), quote(key)):
        assert key not in mask_keys(text) and NAME in mask_keys(text)
    masking = KeyFilter()
    chunks = [masking.next(bytes([byte])) for byte in f"a {key} b".encode()]
    assert b"".join([*chunks, masking.rest()]).decode() == f"a {NAME} b"


def test_a_letter_that_gets_longer_in_lower_case_hides_no_key() -> None:
    register_key("sesame-open", NAME)
    assert mask_keys("İİİ Sesame-Open") == f"i̇i̇i̇ {NAME}"


def test_the_parts_of_a_key_are_keys() -> None:
    register_key("user:hunter2-hunter2", "A")
    register_key("Bearer sk-abcdefghijkl", "B")
    register_key("postgres://me:p%40ssw0rd-x@host:5432/db", "C")
    register_key("-----BEGIN KEY-----\nMIIEabcdefghijkl\n-----END KEY-----", "D")
    assert mask_keys("x hunter2-hunter2 x") == "x A x"
    assert mask_keys("x sk-abcdefghijkl x") == "x B x"
    assert mask_keys("postgres at host has p@ssw0rd-x") == "postgres at host has C"
    assert mask_keys("MIIEabcdefghijkl") == "D"


def test_json_stays_json_and_other_values_stay() -> None:
    register_key(KEY, NAME)
    row = {KEY: [KEY, 1, 1.5, True, None, {"a": (KEY,)}], "path": Path("/x") / "abc"}
    shown = mask_keys_in(row)
    assert shown == {NAME: [NAME, 1, 1.5, True, None, {"a": [NAME]}], "path": "/x/abc"}


def test_nothing_is_touched_without_keys() -> None:
    row = {"a": ["b"]}
    assert mask_keys_in(row) is row and mask_keys("text") == "text"


def test_which_variables_hold_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(keys.os.environ):
        monkeypatch.delenv(name)
    values = {
        "OPENAI_API_KEY": "openai-abcdefgh",
        "HF_TOKEN": "hf-abcdefgh",
        "PGPASSWORD": "pg-abcdefgh",
        "KEYS_2": "second-abcdefgh",
        "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20otlp-abcdefgh,x-team=team-abcdefgh",
        "SOMETHING": "named-abcdefgh",
    }
    harmless = {
        "HOME": "/home/abcdefgh",
        "GIT_AUTHOR_NAME": "author-abcdefgh",
        "SHORT_KEY": "short",
        "TOKENIZERS_PARALLELISM": "parallel-abcdefgh",
        "GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path),
    }
    for name, value in (values | harmless).items():
        monkeypatch.setenv(name, value)
    register_environment(["SOMETHING"])
    for name, value in values.items():
        for secret in re.findall(r"[a-z]+-abcdefgh", value):
            assert mask_keys(f"it is {secret}") == f"it is ${{oc.env:{name}}}"
    for value in harmless.values():
        assert mask_keys(value) == value
    monkeypatch.delenv("HF_TOKEN")
    register_environment()
    assert mask_keys("hf-abcdefgh named-abcdefgh") == "hf-abcdefgh named-abcdefgh"


def test_a_text_is_masked_before_it_is_cut() -> None:
    register_key("k" * 50 + "-secret", NAME)
    assert short_repr("x" * 180 + "k" * 50 + "-secret") == f"'{'x' * 180}{NAME}'"[:200]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_a_stream_is_masked_however_it_is_cut(size: int) -> None:
    register_key(KEY, NAME)
    text = f"a {KEY} b {quote(KEY)} {KEY[:9]} {base64.b64encode(KEY.encode()).decode()} {KEY[:5]}"
    masking = KeyFilter()
    raw = text.encode()
    parts = [masking.next(raw[n : n + size]) for n in range(0, len(raw), size)]
    assert b"".join([*parts, masking.rest()]).decode() == mask_keys(text)


def test_a_stream_is_told_at_once_unless_a_key_may_follow() -> None:
    register_key(KEY, NAME)
    masking = KeyFilter()
    assert masking.next(b"loading ... ") == b"loading ... "
    assert masking.next(KEY[:6].encode()) == b""
    assert masking.next(b" no key") == KEY[:6].encode() + b" no key"


def test_output_is_read_on_where_it_cannot_be_kept() -> None:
    register_key(KEY, NAME)
    kept: list[bytes] = []

    def keep(text: bytes) -> None:
        kept.append(text)
        if len(kept) == 1:
            raise OSError(28, "No space left on device")

    output = MaskedOutput(io.BytesIO(f"{KEY} end".encode()), keep)  # type: ignore[arg-type]
    output.join(60)
    assert b"".join(kept).decode() == f"{NAME} end"
