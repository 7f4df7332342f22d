"""Ollama: a Modelfile beside the merged weights."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

from art_cli.chat.render import Renderer
from art_cli.config.sections.deploy import OllamaConfig
from art_cli.deploy.base import Deployment, Job, Plan, Source
from art_cli.deploy.chat_template import served_template
from art_cli.deploy.targets.merged import (
    WEIGHTS,
    has_merged,
    make_merged,
    merged_words,
    remove_merged,
)
from art_cli.deploy.targets.ollama.go_template import go_template
from art_cli.errors import ArtError
from art_cli.rollout.env_class import env_of
from art_cli.rollout.first_episode import offered_tools
from art_cli.system.files import atomic_write

CREATE_TIMEOUT = 3600.0  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """Ollama's way to write a prompt."""

    template: str  # in Go's language
    adds_bos: bool  # puts the tokenizer's `bos_token` before it, which the template then leaves out
    stop: str  # what ends a turn


class OllamaTarget:
    """Implements Target."""

    def __init__(self, settings: OllamaConfig) -> None:
        self._ollama = shutil.which("ollama")

    def plan(self, source: Source, name: str) -> Plan:
        folder = source.run.deployment("ollama", name)
        details = folder, _prompt(source)
        then = f"ollama create {name} -f {folder / 'Modelfile'}"
        lines = [("what", merged_words(source)), ("file", str(folder / "Modelfile"))]
        lines.append(("runs" if self._ollama else "then", then))
        return Plan(source=source, name=name, lines=lines, details=details)

    def deploy(self, plan: Plan, job: Job) -> None:
        folder, prompt = plan.details
        make_merged(plan.source, folder / WEIGHTS, job, lambda weights: _say_bos(weights, prompt))
        text = modelfile(plan.source, folder / WEIGHTS, prompt)
        atomic_write(folder / "Modelfile", text)
        job.deployment.url = str(folder / "Modelfile")
        if self._ollama:
            job.report("ollama create")
            self._run("create", plan.name, "-f", str(folder / "Modelfile"))
            job.deployment.made["created"] = True
        job.deployment.state = "ready"

    def _run(self, *words: str) -> None:
        assert self._ollama
        try:
            done = subprocess.run(
                [self._ollama, *words], capture_output=True, text=True, timeout=CREATE_TIMEOUT
            )
        except (OSError, subprocess.TimeoutExpired) as e:
            raise ArtError(f"ollama {' '.join(words)}: {e}") from e
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines()
            raise ArtError(f"ollama {' '.join(words)} failed: {' '.join(said[-3:])}")

    def state(self, deployment: Deployment) -> str:
        return "ready" if has_merged(deployment) else "gone"

    def undeploy(self, job: Job) -> str:
        if job.deployment.made.pop("created", False) and self._ollama:
            self._run("rm", job.deployment.name)
        return remove_merged(job.deployment)


def _say_bos(weights: Path, prompt: Prompt) -> None:
    """Write whether a prompt gets a `bos_token` where Ollama's converter reads it.

    What is not said there depends on Ollama's version and on the kind of the tokenizer: see
    `AddTokenSet` in its convert/tokenizer.go.
    """
    path = weights / "tokenizer_config.json"
    settings = json.loads(path.read_text(encoding="utf-8")) | {"add_bos_token": prompt.adds_bos}
    path.write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n")


def modelfile(source: Source, weights: Path, prompt: Prompt) -> str:
    """Return what `ollama create` reads: it samples as the policy was sampled from."""
    sampling = source.experiment.sampling
    lines = [
        f"FROM {weights}",
        f"PARAMETER temperature {sampling.temperature:g}",
        f"PARAMETER top_p {sampling.top_p:g}",
        f"PARAMETER top_k {sampling.top_k}",
        "PARAMETER repeat_penalty 1",
        f"PARAMETER num_ctx {source.experiment.engine.max_model_len}",
        f'PARAMETER stop "{prompt.stop}"',
        f'TEMPLATE """{prompt.template}"""',
    ]
    return "\n".join(lines) + "\n"


def _prompt(source: Source) -> Prompt:
    """Raise UsageError where Ollama cannot write the prompts that the policy was trained on."""
    from art_cli.models.saved_weights import load_tokenizer

    tokenizer = load_tokenizer(source.folder, source.folder)
    tools = asyncio.run(offered_tools(env_of(source.experiment.env), source.env_settings))
    model = source.experiment.model
    ends = [tokenizer.eos_token_id]
    stop = Renderer(tokenizer, tools, ends, model.tool_format, model.template_args).end_of_turn
    return prompt_of(tokenizer, served_template(tokenizer, model), tools, stop)


def prompt_of(tokenizer: Any, chat_template: str | None, tools: list[Any], stop: str) -> Prompt:
    """Return how Ollama writes what `tokenizer` writes. Raises UsageError where it cannot.

    `chat_template` takes the place of the tokenizer's own. Who puts the `bos_token` before a prompt
    is as in the tokenizer: itself, which is said to Ollama, or else the template.
    """
    bos: str = tokenizer.bos_token or ""
    is_added = bool(bos) and tokenizer("a").input_ids[0] == tokenizer.bos_token_id
    begins: set[bool] = set()  # whether a conversation's text begins with it

    def render(messages: list[Any], tools: list[Any] | None = None, generate: bool = False) -> str:
        try:
            text: str = tokenizer.apply_chat_template(
                messages,
                tools=tools,
                tokenize=False,
                add_generation_prompt=generate,
                chat_template=chat_template or tokenizer.chat_template,
            )
        except (TemplateError, TypeError) as e:
            raise ValueError(f"it refuses a conversation: {e}") from e
        if not is_added:
            return text
        begins.add(text.startswith(bos))
        if len(begins) > 1:
            raise ValueError(f"some conversations begin with {bos}, and others do not")
        return text.removeprefix(bos)

    template = go_template(render, tools)
    return Prompt(template=template, adds_bos=begins == {True}, stop=stop)
