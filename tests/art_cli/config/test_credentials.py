"""A key or a password that is written into a config is refused: the config is kept and shown."""

import re
from pathlib import Path

import pytest

from art_cli.config.load import LoadedExperiment, load_experiment
from art_cli.errors import ConfigError

SECRET = "s3cr3t-Value"
BASE = "env: {use: any}\nmodel: {base: tiny}\ntrain: {steps: 1}\n"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def load(section: str, *overrides: str) -> LoadedExperiment:
    text = BASE if not section.startswith("env:") else BASE.partition("\n")[2]
    Path("config.yaml").write_text(f"{text}{section}\n")
    return load_experiment([Path("config.yaml")], overrides)


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("judge: {model: o/x, params: {api_key: KEY}}", "name that in judge.api_key_env"),
        (
            "judge: {model: o/x, params: {extra_headers: {Authorization: Bearer KEY}}}",
            "judge.params.extra_headers.Authorization: holds a key",
        ),
        ("judge: {model: o/x, params: {headers: {X-Auth: KEY}}}", "X-Auth: holds a key"),
        ("judge: {model: o/x, params: {aws_session_token: KEY}}", "holds a key"),
        ("judge: {model: o/x, api_base: 'https://me:KEY@h/v1'}", "holds a password in a URL"),
        ("judge: {model: o/x, api_base: 'https://KEY@h/v1'}", "holds a password in a URL"),
        ("judge: {model: o/x, api_base: 'https://h/v1?a=1&key=KEY'}", "holds a key in a URL"),
        ("judge: {model: o/x, command: [serve, 'http://h?token=KEY']}", "judge.command.1"),
        (
            "env: {use: any, args: {user: {model: o/x, api_base: 'http://a:KEY@h'}}}",
            "env.args.user.api_base: holds a password",
        ),
        (
            "env: {use: any, args: {user: {model: o/x, params: {api_key: KEY}}}}",
            "name that in env.args.user.api_key_env",
        ),
        (
            "track: {otlp: {headers: {x-honeycomb-team: KEY}}}",
            "track.otlp.headers.x-honeycomb-team: holds a key",
        ),
        (
            "track: {otlp: {headers: {authorization: Basic KEY}}}",
            "write ${oc.env:NAME} here",
        ),
        ("track: {mlflow: {uri: 'https://me:KEY@h'}}", "track.mlflow.uri: holds a password"),
        ("engine: {use: vllm, url: 'http://me:KEY@h:8000'}", "engine.url: holds a password"),
        ("engine: {use: vllm, extra: {api-key: KEY}}", "engine.extra.api-key: holds a key"),
        ("backend: {use: skypilot, envs: {MY_KEY: KEY}}", "name that in backend.secrets: [MY_KEY]"),
        (
            "backend: {use: skypilot, setup: 'pip install -i https://me:KEY@h/simple x'}",
            "backend.setup: holds a password in a URL",
        ),
    ],
)
def test_a_key_is_refused_where_it_is_written(section: str, words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load(re.sub(r"\bKEY\b", SECRET, section))
    (problem,) = raised.value.problems
    assert problem.startswith(f"config.yaml:{3 if section.startswith('env:') else 4}:")
    assert words in problem and "is written to the run directory" in problem
    assert "environment variable" in problem and SECRET not in problem


def test_a_key_on_the_command_line_is_refused_and_not_repeated() -> None:
    for override in (f"judge.params.api_key={SECRET}", f"judge.api_base=http://me:{SECRET}@h"):
        with pytest.raises(ConfigError) as raised:
            load("judge: {model: o/x}", override)
        assert "override" in str(raised.value) and SECRET not in str(raised.value)


def test_what_only_names_a_key_is_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ART_KEY", SECRET)
    for section in (
        "judge: {model: o/x, api_key_env: MY_KEY, api_base: 'http://h:8000/v1?version=2'}",
        "judge: {model: o/x, params: {extra_headers: {Authorization: 'Bearer ${oc.env:ART_KEY}'}}}",
        "judge: {model: o/x, params: {api_key: '${oc.env:ART_KEY}', max_tokens: 9}}",
        "judge: {model: o/x, api_base: 'https://me:${oc.env:ART_KEY}@h/v1'}",
        "judge: {model: o/x, params: {prompt_cache_key: art, extra_headers: {X-Title: art}}}",
        "judge: {model: o/x, rubric: 'Basic answers, as https://h/a?b=c, are good'}",
        "backend: {use: skypilot, envs: {MODE: fast}, secrets: [MY_KEY]}",
        "backend: {use: skypilot, setup: 'git clone ssh://git@h/x'}",
        "env: {use: any, args: {password: the env's own, token: 3}}",
    ):
        assert SECRET not in load(section).to_yaml(with_origins=True)
