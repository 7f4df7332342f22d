"""Reading experiments: what is read, what is refused and in which words, what is written back."""

import random
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from textwrap import dedent
from typing import Any, Literal

import pytest

from art_cli.config.interpolate import escape, resolve
from art_cli.config.load import LoadedExperiment, load_experiment
from art_cli.config.schema import Experiment
from art_cli.config.sections.env import EnvConfig
from art_cli.config.sections.model import AdapterConfig, ModelConfig
from art_cli.config.sections.train import TrainConfig
from art_cli.config.yaml import dump
from art_cli.errors import ConfigError, UsageError

MINIMAL = "env: {use: tic_tac_toe}\nmodel: {base: some/model}\ntrain: {steps: 3}\n"


@dataclass(frozen=True)
class Item:
    price: float = 1.0


@dataclass(frozen=True)
class Settings:
    level: int
    mode: Literal["fast", "slow"] = "fast"
    prompt: str = "costs ${5}"
    limit: int | str | None = None
    items: tuple[Item, ...] = (Item(2.5),)
    item: Item = field(default_factory=Item)

    def __post_init__(self) -> None:
        if self.level > 9:
            raise ValueError(f"level {self.level} with the prompt {self.prompt!r} is too hard")


def settings_of(use: str) -> type:
    if use != "tic_tac_toe":
        raise UsageError(f"no env is called {use!r}")
    return Settings


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., LoadedExperiment]:
    monkeypatch.chdir(tmp_path)

    def load(text: str, *overrides: str, **settings: Any) -> LoadedExperiment:
        Path("config.yaml").write_text(dedent(text), encoding="utf-8")
        return load_experiment([Path("config.yaml")], overrides, **settings)

    return load


@pytest.fixture
def problems(load: Callable[..., LoadedExperiment]) -> Callable[..., list[str]]:
    def problems(text: str, *overrides: str, **settings: Any) -> list[str]:
        with pytest.raises(ConfigError) as raised:
            load(text, *overrides, **settings)
        return raised.value.problems

    return problems


# What is read


def test_a_minimal_config_gets_the_defaults_and_the_name_of_its_file(load):
    experiment = load(MINIMAL).experiment
    assert experiment == Experiment(
        name="config",
        env=EnvConfig(use="tic_tac_toe"),
        model=ModelConfig(base="some/model"),
        train=TrainConfig(steps=3),
    )


@pytest.mark.parametrize(
    ("stem", "name"), [("a b (1)", "a-b-1-"), ("_x", "x"), ("ä", "experiment"), ("v1.2", "v1.2")]
)
def test_a_file_name_becomes_a_valid_name(tmp_path, stem, name):
    path = tmp_path / f"{stem}.yaml"
    path.write_text(MINIMAL)
    assert load_experiment([path]).experiment.name == name


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((word, word) for word in ("no", "yes", "on", "1:30", "2020-01-01", "1_000", "<<")),
        *((word, True) for word in ("true", "True", "TRUE")),
        *((word, None) for word in ("null", "~", "")),
        *[("010", 10), ("0x1F", 31), ("0o17", 15), ("-3", -3), ("!!str 5", "5"), ("'5'", "5")],
        *[("1e-5", 1e-5), ("1.0e-5", 1e-5), (".5", 0.5), ("1.", 1.0), ("-.inf", -float("inf"))],
    ],
)
def test_scalars_are_those_of_yaml_1_2(load, text, value):
    args = load(MINIMAL + "name: x\n", f"env.args.x={text}").experiment.env.args
    assert args == {"x": value}
    assert type(args["x"]) is type(value)


def test_anchors_and_merge_keys_work_and_own_keys_win(load):
    args = load(
        """
        model: {base: some/model}
        train: {steps: 3}
        env:
          use: x
          args:
            a: &a {level: 1, mode: fast}
            b: {<<: *a, mode: slow}
            c: {<<: [{level: 5}, *a]}
            d: *a
        """
    ).experiment.env.args
    assert args["b"] == {"level": 1, "mode": "slow"}
    assert args["c"] == {"level": 5, "mode": "fast"}
    assert args["d"] == {"level": 1, "mode": "fast"}


def test_later_files_win_and_null_replaces_a_section(tmp_path):
    base, over = tmp_path / "base.yaml", tmp_path / "over.yaml"
    base.write_text(MINIMAL + "sft: {epochs: 2}\ntrack: {wandb: {mode: offline}}\n")
    over.write_text("sft: null\ntrain: {steps: 7, loss: dapo}\ntrack: {wandb: {entity: me}}\n")
    loaded = load_experiment([base, over])
    assert loaded.experiment.name == "base"
    assert loaded.experiment.sft is None
    assert loaded.experiment.train == TrainConfig(steps=7, loss="dapo")
    wandb = {"mode": "offline", "entity": "me", "upload": "auto", "weave": False}
    others = {"otlp": None, "mlflow": None, "tensorboard": False, "trackio": False, "custom": {}}
    assert loaded.document["track"] == {"wandb": wandb} | others
    assert loaded.origins["train.steps"] == "over.yaml:2"


def test_overrides_are_yaml_and_create_sections(load):
    loaded = load(
        MINIMAL + "sft: null\n",
        "train.steps=20",
        "model.adapter=null",
        "env.args={level: 2}",
        "sft.epochs=4",
        "name=x",
        "train.learning_rate=1e-4",
    )
    experiment = loaded.experiment
    assert (experiment.train.steps, experiment.train.learning_rate) == (20, 1e-4)
    assert (experiment.model.adapter, experiment.env.args) == (None, {"level": 2})
    assert experiment.sft is not None and experiment.sft.epochs == 4
    assert (experiment.name, loaded.origins["name"]) == ("x", "override")


def test_an_override_into_a_section_that_is_null_creates_it(load):
    text = MINIMAL.replace("some/model", "some/model, adapter: null")
    assert load(text, "model.adapter.rank=4").experiment.model.adapter == AdapterConfig(rank=4)


def test_a_byte_order_mark_is_no_part_of_the_config(load):
    assert load("\ufeff" + MINIMAL).experiment.train.steps == 3


# The env's own settings


def test_env_args_are_read_into_the_envs_config_and_its_defaults_are_shown(load):
    loaded = load(MINIMAL, "env.args.level=2", "env.args.item={}", plugin_config=settings_of)
    assert loaded.env_settings == Settings(level=2)
    assert loaded.document["env"]["args"] == {
        "level": 2,
        "mode": "fast",
        "prompt": r"costs \${5}",
        "limit": None,
        "items": [{"price": 2.5}],
        "item": {"price": 1.0},
    }
    assert loaded.experiment.env.args["prompt"] == "costs ${5}"


def test_mistakes_in_env_args_have_places_and_are_reported_together(problems):
    text = """\
        env:
          use: tic_tac_toe
          args: {mode: fats, limit: 1.5, items: [{price: a, prise: 1}], lvl: 3, item: 4}
        model: {base: some/model}
        train: {steps: -1}
        """
    assert problems(text, plugin_config=settings_of) == [
        "config.yaml:3:3: env.args.level: missing. Add for example: level: 1",
        "config.yaml:3:16: env.args.mode: expected one of 'fast', 'slow', got 'fats'. "
        "Did you mean 'fast'?",
        "config.yaml:3:29: env.args.limit: expected an integer or text, got 1.5",
        "config.yaml:3:50: env.args.items.0.price: expected a number, got 'a'",
        "config.yaml:3:53: env.args.items.0.prise: unknown key. Did you mean 'price'?",
        "config.yaml:3:65: env.args.lvl: unknown key. Did you mean 'level'?",
        "config.yaml:3:79: env.args.item: expected a mapping, got 4",
        "config.yaml:5:16: train.steps: must be at least 0, got -1",
    ]


def test_an_unknown_env_is_a_problem_where_it_is_named(problems):
    text = MINIMAL.replace("tic_tac_toe", "tic")
    assert problems(text, plugin_config=settings_of) == [
        "config.yaml:1:12: env.use: no env is called 'tic'"
    ]


def test_an_env_that_refuses_its_settings_is_quoted(problems):
    text = MINIMAL.replace("tic_tac_toe", "tic_tac_toe, args: {level: 10}")
    assert problems(text, plugin_config=settings_of) == [
        "config.yaml:1:31: env.args: level 10 with the prompt 'costs ${5}' is too hard"
    ]


def test_what_an_interpreter_says_of_an_env_stands_at_its_key_once(
    problems: Callable[..., list[str]],
) -> None:
    def refused(use: str, python: str) -> type:
        raise UsageError(f"env.python: there is no program {python!r}")

    [told] = problems(MINIMAL, "env.python=nowhere", plugin_config=refused)
    assert told.endswith("'env.python=nowhere': env.python: there is no program 'nowhere'")


def test_a_wrong_default_of_an_env_is_called_that(problems):
    @dataclass
    class Sloppy:
        text: str = None  # pyright: ignore[reportAssignmentType]

    assert problems(MINIMAL, plugin_config=lambda use: Sloppy) == [
        "config.yaml:1:1: env.args.text: expected text, got null (the env's own default)"
    ]


@pytest.mark.parametrize("annotation", [object(), "NoSuchName", Callable[[], int]])
def test_a_config_that_yaml_cannot_fill_is_a_problem_of_the_env(problems, annotation):
    config = dataclass(type("Odd", (), {"__annotations__": {"x": annotation}, "x": object()}))
    (found,) = problems(MINIMAL, plugin_config=lambda use: config)
    assert found.startswith("config.yaml:1:12: env.use: the Config of this env must be a dataclass")


# Mistakes


def test_all_mistakes_are_reported_in_the_order_of_the_file(problems):
    text = """\
        env: {use: tic_tac_toe, level: 2}
        model:
          base: some/model
          dtype: float
        train:
          steps: abc
          lerning_rate: 1
          loss: cispo
          clip_low: 0.2
          group_size: 2
          group_size: 4
          max_grad_norm: ${oc.env:ART_UNSET}
        learning_rate: 1
        """
    assert problems(text, "train.stps=3", "foo") == [
        "config.yaml:1:25: env.level: unknown key. The env's own settings go under env.args",
        "config.yaml:4:10: model.dtype: expected one of 'auto', 'float32', 'bfloat16', got "
        "'float'. Did you mean 'float32'?",
        "config.yaml:6:10: train.steps: expected an integer of at least 0, got 'abc'",
        "config.yaml:7:3: train.lerning_rate: unknown key. Did you mean 'learning_rate'?",
        "config.yaml:9:3: train.clip_low: has no effect with train.loss=cispo, which clips from "
        "above only; remove it",
        "config.yaml:11:3: train.group_size: given twice, first on line 10; keep one of them",
        "config.yaml:12:18: train.max_grad_norm: the environment variable ART_UNSET is not set; "
        "set it, or give a default: ${oc.env:ART_UNSET,default}",
        "config.yaml:13:1: learning_rate: unknown key. Did you mean 'sft.learning_rate' or "
        "'train.learning_rate'?",
        "override 'foo': expected key.path=value, for example train.steps=20",
        "override 'train.stps=3': train.stps: unknown key. Did you mean 'steps'?",
    ]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.steps=1.0", "expected an integer of at least 0, got 1.0"),
        ("train.steps='5'", "expected an integer of at least 0, got '5'; remove the quotes"),
        ("train.steps=true", "expected an integer of at least 0, got true"),
        ("train.steps=[1]", "expected an integer of at least 0, got a list"),
        ("train.steps.x=1", "expected an integer of at least 0, got a mapping"),
        ("engine.max_num_seqs=1:30", "expected an integer of at least 1, got '1:30'"),
        ("train.kl_coef=x", "expected a number of at least 0, got 'x'"),
        ("train.clip_low=x", "expected a number of at least 0, got 'x'"),
        ("train.kl_coef=.nan", "expected a finite number, got nan"),
        ("sampling.temperature=0", "must be at least 0.001, got 0"),
        ("sampling.temperature=.inf", "must be at most 5, got inf"),
        ("seed=2147483648", "must be less than 2147483648, got 2147483648"),
        ("model.tiny.hidden_size=17", "must be a multiple of 16, got 17"),
        ("train.dynamic_sampling=no", "got 'no' (which is text here): write true "),
        ("train.dynamic_sampling=1", "expected true or false, got 1"),
        ("model.base=5", "expected text, got 5; put it in quotes"),
        ("model.adapter=8", "expected a mapping, got 8"),
        ("checkpoint=", "expected a mapping, got null; write its keys under it, or remove it"),
        ("train.loss=GRPO", "got 'GRPO'. Did you mean 'grpo'?"),
        ("name=a b", "expected a name of letters, digits, '.', '_' and '-', with a letter or "),
        ("name=" + "a" * 101, "expected text of at most 100 characters, got 'aaa"),
    ],
)
def test_a_wrong_value_is_said_in_plain_words(problems, override, message):
    (found,) = problems(MINIMAL, override)
    path = override.partition("=")[0].removesuffix(".x")
    assert found.startswith(f"override {override!r}: {path}: ")
    assert message in found


def test_an_integer_is_good_where_a_number_is_due(load):
    assert load(MINIMAL, "sampling.temperature=1").experiment.sampling.temperature == 1.0


@pytest.mark.parametrize(
    ("section", "cls"),
    [((), Experiment), (("env",), EnvConfig), (("model",), ModelConfig), (("train",), TrainConfig)],
)
def test_each_required_key_is_asked_for_with_an_example(problems, section, cls):
    found = problems("\n".join(f"{key}: {{}}" for key in section) or "seed: 0")
    place = "config.yaml:1:1: " if section else "config.yaml: "
    for each in fields(cls):
        if each.default is MISSING and each.default_factory is MISSING and each.name != "name":
            path = ".".join((*section, each.name))
            start = f"{place}{path}: missing. Add for example: {each.name}: "
            assert any(line.startswith(start) and "..." not in line for line in found)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "config.yaml: is empty"),
        ("# nothing\n", "config.yaml: is empty"),
        ("- 1\n", "config.yaml:1:1: the top level must be a mapping (lines like `seed: 0`), got a"),
        ("---\nnull", "config.yaml:2:1: the top level must be a mapping"),
        ("a: 1\n---\nb: 2\n", "config.yaml:2:1: a second document starts here"),
        ("train:\n\tsteps: 3\n", "config.yaml:2:1: not valid YAML: a tab; indent with spaces"),
        ("a: b: c\n", "config.yaml:1:5: not valid YAML: a `:` where no key can be"),
        ("a: {b: ${c}}\n", "config.yaml:1:9: not valid YAML: a `{` where none can be; inside"),
        ("a: 1\n  b: 2\n", "config.yaml:2:4: not valid YAML: "),
        ("a: [1\n", "config.yaml:2:1: not valid YAML: "),
        ("a: *b\n", "config.yaml:1:4: not valid YAML: found undefined alias 'b'"),
        ("a: &a [*a]\n", "config.yaml:1:4: not valid YAML: an alias contains itself"),
        ("a: x\x01\n", "config.yaml:1:5: not valid YAML: the character U+0001; remove it"),
        ("a: !!python/name:os.system x\n", "config.yaml:1:4: a: the tag "),
        ("a: !!int x\n", "config.yaml:1:4: a: 'x' does not fit its tag"),
        ("[a]: x\n", "config.yaml:1:1: a key must be a single word"),
        ("<<: 5\n", "config.yaml:1:5: `<<` takes a mapping or a list of mappings"),
        (f"a: {'[' * 5000}", "config.yaml: is nested too deeply"),
    ],
)
def test_broken_yaml_is_reported_at_its_place(problems, text, message):
    found = problems(text)
    assert any(line.startswith(message) for line in found), found


def test_files_that_cannot_be_read_are_reported_together(tmp_path):
    (tmp_path / "latin.yaml").write_bytes("name: \xe4".encode("latin-1"))
    paths = [tmp_path / "none.yaml", tmp_path, tmp_path / "latin.yaml"]
    with pytest.raises(ConfigError) as raised:
        load_experiment(paths, ["train.stps=1"])
    assert raised.value.problems == [
        f"{paths[0]}: no such file",
        f"{paths[1]}: is a folder; give the YAML file in it",
        f"{paths[2]}: is not text in UTF-8; save it as UTF-8",
    ]


def test_overrides_alone_are_no_experiment():
    with pytest.raises(ConfigError, match="no config file given"):
        load_experiment([], ["train.steps=3"])


@pytest.mark.parametrize("override", ["", "x", "=3", ".x=3", "train..steps=3"])
def test_a_malformed_override_is_a_problem(problems, override):
    message = "expected key.path=value, for example train.steps=20"
    assert problems(MINIMAL, override) == [f"override {override!r}: {message}"]


# Settings that do not go together


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model.tiny.num_layers=3"], "model.tiny.num_layers: has no effect with model.base=some/"),
        (["train.loss=cispo", "train.clip_low=.2"], "train.clip_low: has no effect with train.los"),
        (["engine.max_model_len=512"], "engine.max_model_len: must be more than sampling.max_toke"),
        (["sampling.max_tokens=9999"], "engine.max_model_len: must be more than sampling.max_toke"),
        (
            ["train.num_minibatches=9"],
            "train.num_minibatches: is 9, but train.scenarios_per_step is 8",
        ),
        (["sft.weights=adapter", "model.adapter=null"], "sft.weights: is adapter, but model"),
        (["model.base=tiny", "sft.weights=adapter"], "sft.weights: is adapter, but a random mode"),
        (["model.quantize=4bit", "model.adapter=null"], "model.quantize: keeps the base as it is"),
        (["model.quantize=8bit", "model.base=tiny"], "model.quantize: has no effect with model."),
        (["model.quantize=8bit", "model.device=cpu"], "model.quantize: needs a GPU, but model.de"),
        (["model.quantize=4bit", "engine.use=vllm"], "model.quantize: leaves nothing that an ad"),
        (["model.quantize=8bit", "sft.weights=all"], "model.quantize: keeps the base as it is"),
        (
            ["model.quantize=8bit", "train.num_processes=2"],
            "model.quantize: 8bit works in ",
        ),
        (["train.optimizer=adamw_8bit", "train.num_processes=2"], "train.optimizer: adamw_8bit wo"),
        (["train.optimizer=adamw_8bit", "model.device=cpu"], "train.optimizer: is adamw_8bit, wh"),
        (["track.wandb={mode: disabled, entity: me}"], "track.wandb.entity: has no effect with tr"),
        (["track.wandb={mode: disabled, upload: on}"], "track.wandb.upload: has no effect with tr"),
        (["track.wandb={mode: offline, weave: true}"], "track.wandb.weave: has no effect with tra"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(problems, overrides, message):
    (found,) = problems(MINIMAL, *overrides)
    assert found.startswith("override ")
    assert f": {message}" in found


@pytest.mark.parametrize(
    "overrides",
    [
        ["model.tiny.num_layers=2"],
        ["model.base=tiny", "model.tiny.num_layers=3"],
        ["model.base=tiny", "sft.weights=all"],
        ["model.base=tiny", "sft={}"],
        ["model.base=tiny", "model.adapter=null", "sft={}"],
        ["train.warmup_steps=3"],
        ["train.loss=cispo", "train.clip_low=null", "train.clip_high=5"],
        ["sft.num_demonstrations=5"],
        ["model.quantize=4bit", "train.optimizer=adamw_8bit"],
        ["model.quantize=4bit", "engine={use: vllm, sync: adapter}"],
        ["train.num_processes=8", "train.gradient_checkpointing=on"],
    ],
)
def test_settings_that_go_together_are_accepted(load, overrides):
    assert load(MINIMAL, *overrides).experiment


def test_an_override_is_blamed_before_the_lines_that_were_right_without_it(problems):
    text = MINIMAL + "engine: {max_model_len: 2048}\nsampling: {max_tokens: 512}\n"
    (found,) = problems(text, "sampling.max_tokens=4096")
    start = "override 'sampling.max_tokens=4096': engine.max_model_len: must be more than"
    assert found == f"{start} sampling.max_tokens (4096), got 2048"
    (found,) = problems(text.replace("512", "4096"))
    assert found.startswith("config.yaml:4:10: engine.max_model_len: must be more than")


CONFIGS = sorted((Path(__file__).parents[3] / "configs").glob("*.yaml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_shipped_config_can_be_tried_for_a_step(path):
    assert load_experiment([path], ["train.steps=1"]).experiment.train.steps == 1


def test_a_rule_is_silent_about_values_that_are_wrong_already(problems):
    (found,) = problems(MINIMAL, "sampling.max_tokens=x", "engine.max_model_len=512")
    assert "expected an integer" in found


# Interpolation and secrets


def test_interpolations_see_other_keys_defaults_and_the_environment(load, monkeypatch):
    monkeypatch.setenv("ART_KEY", "hunter2")
    args = load(
        MINIMAL,
        "env.args.a=${oc.env:ART_KEY}",
        "env.args.b=${oc.env:ART_UNSET,fallback}",
        "env.args.c=${train.steps} of ${train.loss}",
        "env.args.d=${train.steps}",
        "env.args.e=${model.tiny}",
    ).experiment.env.args
    assert args["a"] == "hunter2"
    assert args["b"] == "fallback"
    assert args["c"] == "3 of token_mean"
    assert args["d"] == 3
    assert args["e"] == {"hidden_size": 64, "num_layers": 2, "vocab_size": 640}


def test_an_interpolation_that_fails_is_a_problem_at_its_key(problems):
    found = problems(
        """\
        env: {use: x, args: {a: "${train.stps}", b: "${env.args.c}", c: "${env.args.b}"}}
        model: {base: some/model}
        train:
          steps: ${nope:1}
          clip_low: ${
        """
    )
    assert [line.partition(": cannot")[0] for line in found] == [
        "config.yaml:1:25: env.args.a",
        "config.yaml:1:45: env.args.b",
        "config.yaml:1:65: env.args.c",
        "config.yaml:4:10: train.steps",
        "config.yaml:5:13: train.clip_low",
    ]
    assert (
        "Interpolation key 'train.stps' not found; for a literal ${ in a text write \\${"
        in found[0]
    )
    assert "Recursive" in found[1]


def test_secrets_never_reach_what_is_written(load, monkeypatch):
    monkeypatch.setenv("ART_KEY", "hunter2")
    loaded = load(
        MINIMAL,
        "env.args.key=${oc.env:ART_KEY}",
        "env.args.header=Bearer ${oc.env:ART_KEY}",
        "env.args.indirect=${env.args.header}",
        "env.args.copy.all=${oc.dict.values:env.args.nested}",
        "env.args.nested.key=${oc.env:ART_KEY}",
        "env.args.list=[a, '${oc.env:ART_KEY}']",
        "env.args.steps=${train.steps}",
    )
    assert loaded.experiment.env.args["indirect"] == "Bearer hunter2"
    assert loaded.experiment.env.args["copy"] == {"all": ["hunter2"]}
    text = loaded.to_yaml(with_origins=True)
    assert "hunter2" not in text
    assert loaded.document["env"]["args"]["header"] == "Bearer ${oc.env:ART_KEY}"
    assert loaded.document["env"]["args"]["steps"] == 3
    Path("again.yaml").write_text(text)
    assert load_experiment([Path("again.yaml")]).experiment == loaded.experiment


def test_secrets_never_reach_a_message(problems, monkeypatch):
    monkeypatch.setenv("ART_KEY", "hunter2")
    found = problems(
        MINIMAL,
        "train.steps=${oc.env:ART_KEY}",
        "train.loss=${oc.env:ART_KEY}",
        "seed=${oc.decode:'[${oc.env:ART_KEY}'}",
        "env.args={level: 11, prompt: '${oc.env:ART_KEY}'}",
        plugin_config=settings_of,
    )
    assert len(found) == 4
    assert "hunter2" not in "\n".join(found)
    assert "write ${oc.decode:${oc.env:ART_KEY}}" in "\n".join(found)


def test_a_number_can_come_from_the_environment(load, monkeypatch):
    monkeypatch.setenv("ART_STEPS", "12")
    loaded = load(MINIMAL, "train.steps=${oc.decode:${oc.env:ART_STEPS}}")
    assert loaded.experiment.train.steps == 12
    assert loaded.document["train"]["steps"] == "${oc.decode:${oc.env:ART_STEPS}}"


def test_an_escaped_interpolation_is_literal_text(load):
    loaded = load(MINIMAL, r"env.args.prompt=pay \${amount} to ${env.use}")
    assert loaded.experiment.env.args["prompt"] == "pay ${amount} to tic_tac_toe"
    assert loaded.document["env"]["args"]["prompt"] == r"pay \${amount} to tic_tac_toe"


def test_any_text_survives_escaping_and_resolving():
    rng = random.Random(0)
    for _ in range(300):
        text = "".join(rng.choices(["\\", "${", "}", "$", "{", "a", "'", '"', " "], k=12))
        assert resolve({"text": escape(text)}).data == {"text": text}


# What is written


CONFIGS = [
    [],
    ["model.base=tiny", "sft={weights: all}", "model.tiny.num_layers=4"],
    ["train={loss: gspo, clip_low: 3e-4, learning_rate: 1e-5}", "track.wandb={entity: '010'}"],
    ["eval=null", "model.adapter=null", "project=1e5x", "env.use='1:30'"],
    ['env.args={no: "no", "1": "2020-01-01", e: [], m: {}, n: [[1, {a: 1e-5}]], "a.b": .inf}'],
    [r'env.args={a: "x\n # y\n\n", b: " x\n", c: "a\u2028b", d: "1e-5", e: "\\${x}", f: "\t"}'],
    ['env.args={a: "# no comment", b: "a: b", c: "", d: "~", e: "é 🙂", f: "x\\n- \\n  y"}'],
]


@pytest.mark.parametrize("with_origins", [False, True])
@pytest.mark.parametrize("overrides", CONFIGS)
def test_what_is_written_loads_to_the_same_experiment(load, tmp_path, overrides, with_origins):
    loaded = load(MINIMAL, *overrides)
    path = tmp_path / "written.yaml"
    path.write_text(loaded.to_yaml(with_origins), encoding="utf-8")
    again = load_experiment([path])
    assert again.experiment == loaded.experiment
    assert again.to_yaml() == loaded.to_yaml()


def test_any_text_survives_being_written(load):
    rng = random.Random(0)
    alphabet = [*" \n\t'\"#:-\\$|>~0a.\r\x85\u2028é🙂\x07{}", "${", "\n\n"]
    texts = ["".join(rng.choices(alphabet, k=rng.randrange(12))) for _ in range(300)]
    document = {"env": {"args": {"texts": [escape(text) for text in texts]}}}
    base, written = Path("base.yaml"), Path("written.yaml")
    base.write_text(MINIMAL)
    for comment in (None, lambda path: "why"):
        written.write_bytes(dump(document, comment).encode())
        assert load_experiment([base, written]).experiment.env.args == {"texts": texts}


def test_origins_are_aligned_comments_on_each_leaf(load):
    loaded = load(MINIMAL, "train.steps=5", "env.args={prompt: 'two\n\n  lines', levels: [1]}")
    lines = [line for line in loaded.to_yaml(with_origins=True).splitlines() if "#" in line]
    origins = {line.split()[0]: line.split()[-1] for line in lines}
    assert origins["base:"] == "config.yaml:2"
    assert (origins["steps:"], origins["prompt:"]) == ("override",) * 2
    assert [line.split()[-1] for line in lines if line.split()[:2] == ["-", "1"]] == ["override"]
    assert origins["seed:"] == "default"
    assert len({line.index("#") for line in lines}) == 1
    assert len(lines) == len(loaded.origins)
