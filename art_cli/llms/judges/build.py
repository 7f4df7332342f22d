"""Construction of the judge from the section `judge` of a config."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from art_cli.config.sections.judge import JudgeConfig
from art_cli.config.sections.llm import LLMConfig
from art_cli.errors import JudgeError, PreflightError, UsageError
from art_cli.llms.base import LLM, Budget
from art_cli.llms.judges.base import Judge
from art_cli.llms.judges.cache import AnswerCache
from art_cli.llms.judges.ruler import Ruler
from art_cli.llms.judges.user_judge import UserJudge, check_judge_class
from art_cli.llms.remote import RemoteLLM
from art_cli.llms.stand_in import STAND_IN, StandInLLM
from art_cli.system.child_server import ChildServer
from art_cli.system.files import cache_folder, read_text
from art_cli.system.progress import silent

KEYS = {  # common providers; litellm knows the others'
    "openai": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "gemini": "GEMINI_API_KEY",
    "openrouter": "OPENROUTER_API_KEY",
    "groq": "GROQ_API_KEY",
    "mistral": "MISTRAL_API_KEY",
    "deepseek": "DEEPSEEK_API_KEY",
    "xai": "XAI_API_KEY",
}


async def make_judge(
    cfg: JudgeConfig,
    seed: int,
    *,
    costs: Path | None = None,
    reference: LLM | None = None,
    say: Callable[[str], None] = silent,
) -> Judge:
    """Return a judge that is ready to be called. The caller must close it.

    Spending is recorded in the file `costs`; `say` receives messages about how it is counted.
    Raises PreflightError: no key, no such model, no known price, a server that does not start.
    Raises UsageError if a judge class of the user's own fails.
    """
    check_setup(cfg)
    if cfg.use != "ruler":
        return UserJudge(cfg)
    return Ruler(
        reference or await _remote(cfg, costs, say),
        rubric=read_rubric(cfg),
        votes=cfg.votes,
        max_per_call=cfg.max_per_call,
        cache=AnswerCache(cache_folder("judge") if cfg.cache else None),
        seed=seed,
    )


def check_setup(cfg: JudgeConfig) -> None:
    """Check the rubric's file, and the key or the user's class. Needs no litellm and is fast.

    Raises PreflightError, UsageError.
    """
    read_rubric(cfg)
    if cfg.use != "ruler":
        check_judge_class(cfg.use)
        return
    if not cfg.model:
        raise UsageError("judge.model is missing: judge.use=ruler asks a model, such as openai/o3")
    key = key_of(cfg)
    if key and not os.environ.get(key):
        raise PreflightError(
            f"judge.model={cfg.model} needs {key}, which is not set; put it into the environment "
            "or into .env, or name another variable: judge.api_key_env"
        )


def key_of(cfg: LLMConfig) -> str | None:
    """Return the variable that must hold a key for this model, or None if unknown."""
    given = cfg.api_base or cfg.command or cfg.params.get("api_key")
    return cfg.api_key_env or (None if given else KEYS.get(cfg.model.partition("/")[0]))


def read_rubric(cfg: JudgeConfig) -> str | None:
    """Return the rubric from the config or its file. Raises PreflightError."""
    if cfg.rubric_file is None:
        return cfg.rubric
    try:
        return read_text(Path(cfg.rubric_file))
    except (OSError, UnicodeDecodeError) as e:
        why = e.strerror if isinstance(e, OSError) else e
        raise PreflightError(
            f"judge.rubric_file: cannot read {cfg.rubric_file!r}: {why} (paths are relative to the "
            f"folder that art is started in, {Path.cwd()})"
        ) from e


async def ask_once(judge: Judge, opening: list[Any], tools: list[Any]) -> None:
    """Check with one question that the judge answers, and that a group of this task fits.

    Raises PreflightError.
    """
    judge.check_room(opening, tools)
    try:
        await judge.ping()
    except JudgeError as e:
        raise PreflightError(f"the judge cannot be used: {e}") from e


async def _remote(cfg: JudgeConfig, costs: Path | None, say: Callable[[str], None]) -> LLM:
    if cfg.model == STAND_IN:
        return StandInLLM()
    server = await ChildServer.start(cfg.command) if cfg.command else None
    try:
        return RemoteLLM(cfg, Budget(cfg.max_usd, costs, say=say), server)
    except BaseException:
        if server:
            await server.close()
        raise
