"""Coding agents of the command line, with all of their own tools: perfect play earns exactly 1.

The programs are the recipes of docs/coding-agents.md.
"""

from __future__ import annotations

import json

import pytest
from integration.clients.conftest import Command
from integration.clients.stage import Task, assert_perfect, play_perfectly, play_turns, tasks

from art_cli.models.policy import Policy
from art_envs.code_edit import syntax

ROOM = 2**18  # tokens, each two characters of what these agents say before they begin
SLOW = pytest.mark.slow  # needs an environment of its own
# The program, and the sequences of an episode in which opencode also asks for a title.
CALLING = {
    "codex.sh --model policy": 1,
    "codex.sh": 1,  # with its default model, for which it has other tools
    "claude_code.sh": 1,
    "opencode.sh": 2,
    "qwen_code.sh": 1,
}


@pytest.mark.parametrize(
    "program",
    [pytest.param(p, marks=SLOW if p in ("opencode.sh", "qwen_code.sh") else ()) for p in CALLING],
)
def test_an_agent_calls_the_tools_of_the_env(
    program: str, retail: Task, command: Command, policy: Policy
) -> None:
    words = command(*program.split())
    drops_hosted = program.startswith("codex")
    played = play_perfectly(retail, policy, words, room=ROOM, drops_hosted=drops_hosted)
    assert_perfect(played)
    assert len(played.trajectory.sequences) == CALLING[program]


def test_codex_compacts_its_history_and_goes_on(
    retail: Task, command: Command, policy: Policy
) -> None:
    limits = ("model_context_window=40000", "model_auto_compact_token_limit=11000")
    words = command("codex.sh", "--model", "policy", *(w for each in limits for w in ("-c", each)))
    played = play_perfectly(retail, policy, words, room=ROOM, drops_hosted=True)
    assert_perfect(played)
    assert len(played.trajectory.sequences) > 1


@pytest.mark.parametrize(
    "program", ["mini_swe_agent.sh", pytest.param("aider.sh", marks=pytest.mark.slow)]
)
def test_an_agent_edits_the_files_of_the_env(
    program: str, command: Command, policy: Policy
) -> None:
    task = tasks("code_edit", 1, level=0, languages=("python",))[0]
    [(path, text)] = task.scenario.data["files"].items()
    [repair] = task.scenario.data["repairs"]
    edit = [repair[key] for key in ("symbol", "old", "new", "nth")]
    mended = syntax.edit("python", text, *edit)
    turns = {
        "aider.sh": [f"{path}\n```\n{mended}```\n"],
        "mini_swe_agent.sh": [
            _bash(f"cat > {path} <<'END'\n{mended}END"),
            _bash("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"),
        ],
    }
    assert_perfect(play_turns(task, policy, command(program), turns[program], room=ROOM))


def _bash(command: str) -> str:
    call = json.dumps({"name": "bash", "arguments": {"command": command}})
    return f"<tool_call>{call}</tool_call>"
