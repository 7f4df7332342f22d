"""Ollama: a Modelfile beside the merged weights."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from art_cli.config.targets import OllamaConfig
from art_cli.deploy.base import Deployment, Plan, Source
from art_cli.deploy.merged import WEIGHTS, has_merged, make_merged, merged_words, remove_merged
from art_cli.errors import ArtError
from art_cli.report import Report
from art_cli.rundir import atomic_write

CREATE_TIMEOUT = 3600.0  # seconds
# ChatML with tools in the Hermes format, as Ollama's own Qwen models have it, in Go's templates.
CHATML = """\
{{- if or .System .Tools }}<|im_start|>system
{{ .System }}
{{- if .Tools }}

# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{{- range .Tools }}
{"type": "function", "function": {{ .Function }}}
{{- end }}
</tools>

For each function call, return a json object with function name and arguments within \
<tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>
{{- end }}<|im_end|>
{{ end }}
{{- range $i, $_ := .Messages }}
{{- $last := eq (len (slice $.Messages $i)) 1 -}}
{{- if eq .Role "user" }}<|im_start|>user
{{ .Content }}<|im_end|>
{{ else if eq .Role "assistant" }}<|im_start|>assistant
{{ if .Content }}{{ .Content }}
{{- end }}
{{- range .ToolCalls }}<tool_call>
{"name": "{{ .Function.Name }}", "arguments": {{ .Function.Arguments }}}
</tool_call>
{{- end }}{{ if not $last }}<|im_end|>
{{ end }}
{{- else if eq .Role "tool" }}<|im_start|>user
<tool_response>
{{ .Content }}
</tool_response><|im_end|>
{{ end }}
{{- if and (ne .Role "assistant") $last }}<|im_start|>assistant
{{ end }}
{{- end }}"""


class OllamaTarget:
    """Implements Target."""

    def __init__(self, settings: OllamaConfig) -> None:
        self._ollama = shutil.which("ollama")

    def plan(self, source: Source, name: str) -> Plan:
        """See Target."""
        folder = source.run.deployment("ollama", name)
        then = f"ollama create {name} -f {folder / 'Modelfile'}"
        lines = [("what", merged_words(source)), ("file", str(folder / "Modelfile"))]
        lines.append(("runs" if self._ollama else "then", then))
        return Plan(source=source, name=name, lines=lines, details=folder)

    def deploy(
        self,
        plan: Plan,
        deployment: Deployment,
        keep: Callable[[], None],
        report: Report,
        *,
        wait: bool,
    ) -> None:
        """See Target."""
        folder: Path = plan.details
        make_merged(plan.source, folder / WEIGHTS, deployment, report)
        atomic_write(folder / "Modelfile", modelfile(plan.source, folder / WEIGHTS))
        deployment.url = str(folder / "Modelfile")
        if self._ollama:
            report("ollama create")
            self._run("create", plan.name, "-f", str(folder / "Modelfile"))
            deployment.made["created"] = True
        deployment.state = "ready"

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
        """See Target."""
        return "ready" if has_merged(deployment) else "gone"

    def undeploy(self, deployment: Deployment, keep: Callable[[], None], report: Report) -> str:
        """See Target."""
        if deployment.made.pop("created", False) and self._ollama:
            self._run("rm", deployment.name)
        return remove_merged(deployment)


def modelfile(source: Source, weights: Path) -> str:
    """What `ollama create` reads.

    Ollama does not read chat templates as transformers writes them: that of ChatML is given in its
    own language; another has to be among those that it knows by itself.
    """
    template = _template(weights)
    lines = [f"FROM {weights}", f"PARAMETER temperature {source.experiment.sampling.temperature:g}"]
    lines.append(f"PARAMETER num_ctx {source.experiment.engine.max_model_len}")
    if "<|im_start|>" in template:
        lines += ['PARAMETER stop "<|im_end|>"', f'TEMPLATE """{CHATML}"""']
    return "\n".join(lines) + "\n"


def _template(weights: Path) -> str:
    file = weights / "chat_template.jinja"
    if file.exists():
        return file.read_text()
    return str(json.loads((weights / "tokenizer_config.json").read_text()).get("chat_template"))
