"""Every mistake of a user ends with its exit code and a message that helps, never a traceback."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from short_run import COLOURS, CONFIG, Art

from art_cli.cli.main import COMMANDS, SECTIONS, main
from art_cli.errors import EXIT_FAILED, EXIT_PREFLIGHT, EXIT_USAGE
from art_cli.models.policy import Policy
from art_cli.runs.directory import RunDir

ENV = """
from art_cli import Done, Env

class Mine(Env):
    episode_timeout = {timeout}
    tool_timeout = {timeout}

    def __init__(self, scenario, cfg):
        super().__init__(scenario, cfg)
        {init}

    async def start(self):
        {start}

    async def score(self, trajectory):
        {score}

    @classmethod
    def demonstrations(cls, cfg, num):
        {demonstrations}
"""
BODIES = {
    "timeout": "300",
    "init": "pass",
    "start": "return 'hello'",
    "score": "return 1.0",
    "demonstrations": "return [[{'role': 'user', 'content': 'a'},"
    " {'role': 'assistant', 'content': 'b'}]]",
}
QUICK = ("sft=null", "eval=null", "train.steps=1", "train.scenarios_per_step=1")


@dataclass(frozen=True)
class Result:
    """How a command ended."""

    code: int
    out: str
    err: str


Command = Callable[..., Result]


@pytest.fixture
def art(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Run `art` in this process, in a folder with a good config.yaml."""
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text(CONFIG)

    def run(*arguments: str) -> Result:
        monkeypatch.setattr(sys, "argv", ["art", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
            sys.exit(0)
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        code = ended.value.code or 0
        assert isinstance(code, int)
        return Result(code, out, err)

    return run


def write_env(**bodies: str) -> str:
    """env.py with these bodies of methods -> the override that uses it."""
    Path("env.py").write_text(ENV.format(**{**BODIES, **bodies}))
    return "env.use=env.py:Mine"


# ---------------------------------------------------------------- what is written wrongly


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("train.lerning_rate=1", "train.lerning_rate: unknown key. Did you mean 'learning_rate'?"),
        ("train.steps=many", "train.steps: expected an integer"),
        ("train.group_size=1", "train.group_size: must be"),
        ("sampling.temperature=9", "sampling.temperature: must be"),
        ("env.args.level=3", "env.args.level: unknown key"),
        ("env.use=oder_desk", "no env is registered as 'oder_desk'. Did you mean 'order_desk'?"),
        ("env.use=nowhere:Env", "there is no module 'nowhere', neither installed nor under"),
        ("env.use=json:Decoder", "json has no 'Decoder'; it has dump"),
        ("env.use=json:JSONDecoder", "JSONDecoder is not a subclass of art_cli.Env"),
        ("env.use=missing.py:Env", "there is no file"),
        (f"env.use={COLOURS}:Colours", "has no 'Colours'; it has Opposites"),
        ("train.router_aux_loss_coef=0.1", "coef: has no effect with model.base=tiny"),
    ],
)
def test_a_wrong_setting_is_named(art: Command, override: str, words: str) -> None:
    result = art("validate", "config.yaml", override)
    assert result.code == EXIT_USAGE
    assert words in result.err


def test_what_the_base_has_not_is_told_before_the_warm_up(art: Command) -> None:
    override = "model.adapter={target_modules: [experts]}"
    result = art("run", "config.yaml", override, "sft.weights=all")
    assert result.code == EXIT_USAGE
    assert "'experts' finds nothing in Qwen3ForCausalLM" in result.err
    assert "warming up" not in result.out + result.err


def test_mistakes_in_the_file_have_a_place_and_come_all_at_once(art: Command) -> None:
    Path("config.yaml").write_text(CONFIG.replace("steps: 8", "stps: 8") + "seed: high\n")
    result = art("run", "config.yaml")
    assert result.code == EXIT_USAGE
    assert "config.yaml:11:9: train.stps: unknown key. Did you mean 'steps'?" in result.err
    assert "seed: expected an integer" in result.err


def test_a_missing_config_is_named(art: Command) -> None:
    result = art("run", "conifg.yaml")
    assert result.code == EXIT_USAGE and "conifg.yaml" in result.err


def test_a_wrong_command_is_answered_with_those_that_are_like_it(art: Command) -> None:
    result = art("vaildate", "config.yaml")
    assert result.code == EXIT_USAGE and "Did you mean 'validate'?" in result.err


def test_the_version_is_that_of_the_package(art: Command) -> None:
    assert art("--version").out == f"art {version('art-cli')}\n"


def test_every_command_has_help_under_both_names_and_a_whole_line_in_the_list(
    art: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    listed = art("-h").out
    assert listed == art("--help").out
    assert all(f"\n{title}:\n" in listed for title in SECTIONS)
    for name, (_, line) in COMMANDS.items():
        assert f"{name:<14}  {line}\n" in listed
        said = art(name, "-h")
        assert said.code == 0 and f" {name} " in said.out and "-h, --help" in said.out


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("art dep", {"deploy", "deployments"}),
        ("art run --re", {"--resume"}),
        ("art judge ", {"audit", "rescore"}),
    ],
)
def test_the_shell_completes_commands_and_options(typed: str, completed: set[str]) -> None:
    asked = {"_ART_COMPLETE": "complete_bash", "COMP_WORDS": typed}
    asked["COMP_CWORD"] = str(typed.count(" "))
    code = "import sys; sys.argv = ['art']; from art_cli.cli.main import main; main()"
    result = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | asked,
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(result.stdout.split()) == completed


@pytest.mark.parametrize(
    "arguments", [("run",), ("run", "config.yaml", "--resum"), ("trian",), ("eval", "--split=x")]
)
def test_a_wrong_command_line_shows_the_usage(art: Command, arguments: tuple[str, ...]) -> None:
    result = art(*arguments)
    assert result.code == EXIT_USAGE
    assert "Usage: " in result.err and "Error: " in result.err


# ---------------------------------------------------------------- envs that do not work


def test_a_syntax_error_in_the_env_has_its_line(art: Command) -> None:
    Path("env.py").write_text("import json\nclass Mine(:\n")
    result = art("validate", "config.yaml", "env.use=env.py:Mine")
    assert result.code == EXIT_USAGE and "env.py:2: SyntaxError" in result.err


@pytest.mark.parametrize(
    ("bodies", "words"),
    [
        ({"init": "self.rng.choice([])"}, "env.py:10: IndexError"),
        ({"start": "return 1 / 0"}, "env.py:13: ZeroDivisionError: division by zero"),
        ({"start": "return None"}, "start() returned None; expected text or a list of messages"),
        ({"start": "raise SystemExit(0)"}, "raised SystemExit(0)"),
        ({"start": "import asyncio; await asyncio.sleep(60)", "timeout": "0.3"}, "within 0.3 s"),
    ],
)
def test_an_env_that_does_not_open_is_told_before_the_start(
    art: Command, bodies: dict[str, str], words: str
) -> None:
    result = art("run", "config.yaml", write_env(**bodies))
    assert result.code == EXIT_USAGE
    assert "the env Mine does not work" in result.err and words in result.err


def test_a_plain_start_that_sleeps_forever_does_not_hold_the_program(tmp_path: Path) -> None:
    result = in_folder(tmp_path, start="import time; time.sleep(3600)", plain=True, timeout="0.3")
    assert result.returncode == EXIT_USAGE and "did not return within 0.3 s" in result.stderr


def in_folder(
    folder: Path, before: str = "", plain: bool = False, **bodies: str
) -> subprocess.CompletedProcess[str]:
    """`art validate` of an env in a process of its own."""
    env = ENV.format(**{**BODIES, **bodies})
    (folder / "env.py").write_text(env.replace("async def start", "def start") if plain else env)
    config = "env: {use: env.py:Mine}\nmodel: {base: tiny}\ntrain: {steps: 1}\n"
    (folder / "c.yaml").write_text(config)
    code = f"{before}from art_cli.cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, "validate", "c.yaml"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def test_demonstrations_that_raise_have_their_line(art: Command) -> None:
    result = art("run", "config.yaml", write_env(demonstrations="return [{}['x']]"), *QUICK)
    assert result.code == EXIT_USAGE
    assert "Mine.demonstrations() failed" in result.err and "env.py:20: KeyError" in result.err


def test_an_env_in_which_every_episode_fails_ends_the_run(art: Command) -> None:
    result = art("run", "config.yaml", write_env(score="return 1 / 0"), *QUICK)
    assert result.code == EXIT_FAILED
    assert "all 4 episodes failed, the first with" in result.err
    assert "env.py:16: ZeroDivisionError: division by zero" in result.err


def test_an_async_env_that_blocks_is_ended_by_the_watchdog(tmp_path: Path) -> None:
    code = "from art_cli.rollout import first_episode; first_episode.BLOCK_GRACE = 0.5; "
    result = in_folder(tmp_path, code, start="import time; time.sleep(3600)", timeout="0.3")
    assert result.returncode == EXIT_FAILED
    assert "the env Mine blocked the program for 0.8 s; stopping" in result.stderr
    assert "an `async def` of an env must not block: use a plain `def`" in result.stderr
    assert "env.py" in result.stderr and "line 13 in start" in result.stderr


# ---------------------------------------------------------------- models and demonstrations


def use_model(base: str) -> None:
    """Make config.yaml use a model that is not made by the run."""
    before, _, after = CONFIG.partition("model:\n")
    after = after.partition("sft: ")[2]
    Path("config.yaml").write_text(f"{before}model: {{base: {base}}}\nsft: {after}")


def test_a_model_that_does_not_exist_is_named(
    art: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    use_model("no-such/model")
    result = art("run", "config.yaml")
    assert result.code == EXIT_USAGE
    assert "model.base: cannot load 'no-such/model' (neither a folder with a model" in result.err


def test_a_model_without_a_chat_template_is_refused(
    art: Command, make_policy: Callable[..., Policy]
) -> None:
    make_policy().save(Path("base"))
    Path("base/chat_template.jinja").unlink()
    use_model("base")
    result = art("run", "config.yaml")
    assert result.code == EXIT_USAGE
    assert "model.base: 'base' has no chat template; use an instruct model" in result.err


def test_a_broken_line_of_demonstrations_has_its_place(art: Command) -> None:
    good = '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}'
    Path("demos.jsonl").write_text(f"{good}\n{good[:-2]}\n")
    result = art("run", "config.yaml", "sft.demonstrations=demos.jsonl")
    assert result.code == EXIT_USAGE
    assert "demos.jsonl:2: not valid JSON" in result.err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
def test_a_device_that_is_not_there_is_not_ready(art: Command) -> None:
    result = art("run", "config.yaml", "model.device=cuda")
    assert result.code == EXIT_PREFLIGHT and "torch sees no CUDA device" in result.err


# ---------------------------------------------------------------- runs


def test_a_run_is_not_started_twice(art: Command) -> None:
    assert art("run", "config.yaml", *QUICK).code == 0
    result = art("run", "config.yaml", *QUICK)
    assert result.code == EXIT_USAGE
    assert "runs/test/short already holds a run (done, step 1 of 1)" in result.err
    for remedy in ("--resume", "train.steps=2 --resume", "name=NEW_NAME", "--overwrite"):
        assert remedy in result.err


def test_a_run_does_not_go_on_with_another_config(art: Command) -> None:
    assert art("run", "config.yaml", *QUICK).code == 0
    changed = ("train.learning_rate=0.1", "checkpoint.keep=7")
    result = art("run", "config.yaml", *QUICK, *changed, "--resume")
    assert result.code == EXIT_USAGE
    assert "  train.learning_rate: 0.004 -> 0.1\n" in result.err and "keep" not in result.err
    allowed = ("train.steps=2", "checkpoint.keep=7", "track.wandb.mode=disabled")
    assert art("run", "config.yaml", *QUICK, *allowed, "--resume").code == 0
    assert RunDir(Path("runs/test/short")).checkpoint_steps() == [1, 2]


def test_a_run_within_the_warm_up_of_its_schedule_is_a_trial_with_a_note(art: Command) -> None:
    result = art("run", "config.yaml", *QUICK, "train.warmup_steps=9")
    assert result.code == 0
    assert "train.steps=1 ends within train.warmup_steps=9" in result.out
    assert "rises to 10% of" in result.out


def test_a_run_that_another_process_holds_is_left_alone(art: Command) -> None:
    run = RunDir(Path("runs/test/short"))
    RunDir.create(run.root)
    with run.lock():
        result = art("run", "config.yaml")
    assert result.code == EXIT_PREFLIGHT
    assert f"is in use by process {os.getpid()} on " in result.err
    assert not run.config.exists()


@pytest.mark.slow
@pytest.mark.parametrize("file", ["optimizer.pt", "model.safetensors"])
def test_a_full_disk_loses_no_checkpoint(tmp_path: Path, file: str) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    art = Art(tmp_path, "config.yaml", "train.steps=1")
    assert art.wait() == 0, art.output
    too_small = (art.run.checkpoint(1) / file).stat().st_size - 1
    art = Art(tmp_path, "config.yaml", "train.steps=5", "--resume", largest_file=too_small)
    assert art.wait() == EXIT_FAILED
    assert "could not write" in art.output and "go on with --resume" in art.output
    assert "Traceback" not in art.output and art.run.state() == "failed"
    assert art.run.checkpoint_steps() == [1] and not list(art.run.checkpoints.glob(".*"))
    art = Art(tmp_path, "config.yaml", "train.steps=5", "--resume")
    assert art.wait() == 0, art.output
    steps = [r["training_step"] for r in art.run.read_metrics() if "train/reward" in r]
    assert steps == [1, 2, 3, 4, 5]


def test_a_checkpoint_that_does_not_exist_is_told_with_those_that_do(art: Command) -> None:
    assert art("run", "config.yaml", *QUICK).code == 0
    result = art("eval", "runs/test/short", "--checkpoint", "7")
    assert result.code == EXIT_USAGE
    assert "has no checkpoint '7'; expected best, last or one of: 1" in result.err


def test_a_run_is_found_from_any_folder_and_not_mistaken_for_another(
    art: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert art("run", "config.yaml", *QUICK).code == 0
    command = ("--checkpoint", "last", "--episodes", "2", "--json")
    shutil.copytree("runs/test/short", "runs/test/copy")
    monkeypatch.chdir("runs/test")
    assert json.loads(art("eval", "../test/short", *command).out).keys() == {"untrained", "last"}
    result = art("eval", "copy", *command)
    assert result.code == EXIT_USAGE and "was moved: its config says test/short" in result.err


def test_eval_of_nothing_says_so(art: Command) -> None:
    result = art("eval", "runs/test/shrt")
    assert result.code == EXIT_USAGE and "runs/test/shrt" in result.err


# ---------------------------------------------------------------- --json


def test_json_is_all_that_is_on_stdout(art: Command) -> None:
    ran = json.loads(art("run", "config.yaml", *QUICK, "--json").out)
    assert (ran["step"], ran["finished"]) == (1, True)
    kept = Path(ran["run"])
    assert "done at step 1/1" in (kept / "logs" / "run.log").read_text()
    assert json.loads((kept / "made-with.jsonl").read_text())["package"]["torch"]
    command = ("eval", "runs/test/short", "--checkpoint", "last", "--episodes", "3", "--json")
    assert json.loads(art(*command).out)["last"]["episodes"] == 3
    assert json.loads(art("runs", "--json").out)[0]["state"] == "done"
    assert "order_desk" in {row["name"] for row in json.loads(art("envs", "--json").out)}
    assert json.loads(art("validate", "config.yaml", "--json").out)["valid"] is True


def test_validate_gives_all_mistakes_as_json(art: Command) -> None:
    result = art("validate", "config.yaml", "train.stps=1", "seed=high", "--json")
    answer = json.loads(result.out)
    assert result.code == EXIT_USAGE
    assert answer["valid"] is False and len(answer["problems"]) == 2


# ---------------------------------------------------------------- what is not imported


@pytest.mark.parametrize(
    ("arguments", "absent"),
    [
        (["--help"], {"torch", "omegaconf", "rich", "pydantic", "asyncio", "art_cli.cli.run"}),
        (["--version"], {"torch", "omegaconf", "rich", "asyncio", "art_cli.cli.run"}),
        (["run", "--help"], {"torch", "transformers", "omegaconf", "wandb"}),
        (["validate", "config.yaml"], {"torch", "transformers", "wandb"}),
        (["envs"], {"torch", "transformers", "wandb"}),
    ],
)
def test_quick_commands_import_nothing_heavy(
    tmp_path: Path, arguments: list[str], absent: set[str]
) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    code = (
        "import atexit, sys; from art_cli.cli.main import main; "
        f"atexit.register(lambda: print('imported', {absent!r} & set(sys.modules))); main()"
    )
    command = [sys.executable, "-c", code, *arguments]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "imported set()" in result.stdout
