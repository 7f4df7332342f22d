"""Run all trials of a base, from its config.json and tokenizer alone."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from art_cli.errors import ArtError, PreflightError, UsageError
from art_cli.preflight.base_model import of_config, tokenizer_of
from art_cli.preflight.certified import remember
from art_cli.preflight.certify.adapters import check_adapter
from art_cli.preflight.certify.conversation import check_conversation
from art_cli.preflight.certify.numbers import check_engine, check_numbers
from art_cli.preflight.certify.serving import vllm_command
from art_cli.preflight.certify.specimen import Specimen, Trial, specimen_of
from art_cli.preflight.memory.shape import UnknownSizeError, read_config
from art_cli.preflight.small_model.config import as_transformers_reads
from art_cli.system.progress import Report

Check = Callable[[Specimen], Iterator[Trial]]
CHECKS: tuple[tuple[str, Check], ...] = (
    ("log-probabilities and gradients", check_numbers),
    ("the engine", check_engine),
    ("an adapter", check_adapter),
)


@dataclass(kw_only=True)
class Certificate:
    """The report of a certification. `trials` grows while it is made."""

    base: str
    trials: list[Trial] = field(default_factory=list)
    vllm: str = ""  # the command to serve the base, if it could be loaded

    @property
    def failed(self) -> list[Trial]:
        """The trials with a difference or an error."""
        return [t for t in self.trials if t.status == "failed"]

    @property
    def is_whole(self) -> bool:
        """True if all trials ran and passed."""
        return all(t.status == "passed" for t in self.trials)


def certify(base: str, report: Report) -> Certificate:
    """Run all trials on a small model of the base's architecture. If all pass, record it.

    Raises UsageError if there is no such model, PreflightError if the hub does not answer.
    """
    if base == "tiny":
        raise UsageError("tiny is made by art itself; name a folder with a model, or a hub id")
    report("reading config.json")
    try:
        config = read_config(base)
    except UnknownSizeError as e:
        raise PreflightError(f"{base} cannot be certified: {e}") from e
    found = Certificate(base=base)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # library warnings about things that are measured here
        found.trials += _architecture(base, config)
        if not found.failed:
            found.trials += _computed(found, config, report)
        report("reading its chat template")
        found.trials += _spoken(base, config)
    report("")
    if found.is_whole:
        try:
            remember(config, base)
        except OSError as e:
            raise PreflightError(f"it passed, but the record could not be written: {e}") from e
    return found


def _architecture(base: str, config: dict[str, Any]) -> Iterator[Trial]:
    for result in of_config(base, config):
        status = "failed" if result.status == "failed" else "passed"
        todo = f"; {result.todo}" if result.todo else ""
        name = result.check or "architecture"
        yield Trial(name=name, status=status, what=f"{result.what}{todo}")


def _computed(found: Certificate, config: dict[str, Any], report: Report) -> Iterator[Trial]:
    """Load a small checkpoint as a run does, and compare all computations with transformers."""
    report("making a small model of the same architecture")
    try:
        with specimen_of(config) as specimen:
            yield _size(specimen)
            yield _ways(specimen)
            for what, check in CHECKS:
                report(f"comparing {what}")
                yield from _guarded(what, check, specimen)
            found.vllm = vllm_command(found.base, as_transformers_reads(config), specimen)
    except ArtError as e:
        yield Trial(name="loading", status="failed", what=str(e))


def _size(specimen: Specimen) -> Trial:
    model = specimen.policy.base
    size = sum(p.numel() for p in model.parameters()) / 1e6
    layers = getattr(model.config.get_text_config(), "num_hidden_layers", "?")
    what = f"a {type(model).__name__} of {layers} layers and {size:.2f}M parameters was loaded"
    return Trial(name="loading", status="passed", what=what)


def _ways(specimen: Specimen) -> Trial:
    """Return the ways in which the base is read, and why faster ways failed."""
    ways = specimen.policy.ways
    quickest = "updates read shared prefixes once, and the engine all episodes at once"
    what = ways.in_words() or quickest
    return Trial(name="read", status="passed", what=f"{what} ({ways.why})" if ways.why else what)


def _guarded(what: str, check: Check, specimen: Specimen) -> Iterator[Trial]:
    try:
        yield from check(specimen)
    except Exception as e:  # a family's own code may raise anything
        first = str(e).strip().partition("\n")[0]
        yield Trial(name=what, status="failed", what=f"{type(e).__name__}: {first:.300}")


def _spoken(base: str, config: dict[str, Any]) -> Iterator[Trial]:
    try:
        whole = as_transformers_reads(config)
        tokenizer, missing = tokenizer_of(base)
        if tokenizer is None:
            yield Trial(name="tokenizer", status="skipped", what=missing)
        else:
            yield from check_conversation(base, whole, tokenizer)
    except Exception as e:  # templates and tokenizers may run arbitrary code
        first = str(e).strip().partition("\n")[0]
        yield Trial(name="chat template", status="failed", what=f"{first:.300}")
