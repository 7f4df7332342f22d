"""Checks of the plays' texts: accepted turns, leaked answers, leaked keys."""

from __future__ import annotations

import json
import re
from collections import defaultdict

from art_cli.chat.turns import read_turn
from art_cli.keys import holds_key, mask_keys
from art_cli.preflight.check_result import CheckResults, failed, ok, place_of, skipped, warning
from art_cli.preflight.envs.play import Played
from art_cli.preflight.envs.subject import Subject
from art_cli.types import Step

WORD = re.compile(r"\w+")
MARKUP = re.compile(r"</?\w+>|\\boxed|[{}$]")  # around an answer
KEY = re.compile(r"\$\{oc\.env:\w+\}")  # as `mask_keys` leaves it
FEWEST = 3  # different answers needed before a common place is a leak
MOSTLY = 0.9  # of the episodes
SHORTEST = 12  # characters of JSON arguments; shorter ones like {"by": 1} may match by chance


def check_turns(s: Subject) -> CheckResults:
    """Check that some turn of some player was accepted: a tool call, or a reply that differs."""
    plays = [p for found in s.plays.values() for p in found if p.error is None]
    steps = [(p, step) for p in plays for step in p.trajectory.steps]
    calls = [step for _, step in steps if step.tool]
    accepted = [step for step in calls if not step.is_error]
    found = failed if s.plays.get("gold") else warning  # without gold, nothing shows a correct turn
    todo = "let gold() or demonstrations() show a turn that is accepted; say in the prompt how"
    if calls and not accepted:
        what = f"no turn of any player was ever accepted: all of {len(calls)} calls were refused"
        yield found(f"{what}, the first with {calls[0].result!r:.80}", place_of(s.env_class), todo)
    words = [(p, step) for p, step in steps if step.tool is None]
    if not accepted and (answer := _only_reply(words)) is not None:
        what = "no turn of any player was ever accepted: whatever is said is answered by"
        yield found(f"{what} {answer!r:.80}", place_of(s.env_class, "reply"), todo)
    yield ok(f"{len(accepted)} of {len(calls)} calls were accepted, {len(words)} turns of words")


def _only_reply(words: list[tuple[Played, Step]]) -> str | None:
    """Return the reply if all turns of each scenario got the same one, else None.

    None also if a reply ended an episode, or if all turns were equal.
    """
    replies: dict[str, set[str | None]] = defaultdict(set)
    said: dict[str, set[str]] = defaultdict(set)
    for p, step in words:
        replies[p.trajectory.scenario.id].add(step.result)
        said[p.trajectory.scenario.id].add(step.said)
    if not replies or any(len(r) > 1 or None in r for r in replies.values()):
        return None
    return next(iter(replies.values())).pop() if any(len(t) > 1 for t in said.values()) else None


def check_prompt(s: Subject) -> CheckResults:
    """Check that the prompt does not contain gold's answers. Only warns: some tasks allow it."""
    plays = [p for p in s.plays.get("gold", ()) if p.error is None and p.turns and p.opening]
    if not plays:
        yield skipped("there is no gold whose answers could be looked for")
        return
    where, todo = place_of(s.env_class, "start"), "fine, if the task is to find or to repeat it"
    if told := _told_after(plays):
        what = "the prompt says what gold answers, after the same word in all episodes:"
        yield warning(f"{what} {told!r}", where, f"a leak? {todo}")
    spelled = [arguments for p in plays if (arguments := _spelled(p))]
    if spelled:
        what = f"the prompt has arguments as gold calls with them ({len(spelled)} of {len(plays)}"
        yield warning(f"{what} episodes): {spelled[0]:.100}", where, f"a leak? {todo}")
    yield ok(f"gold's answers do not stand out in the prompts of {len(plays)} episodes")


def check_keys(s: Subject) -> CheckResults:
    """Check that no text for the policy contains an API key of the environment."""
    plays = [p for found in s.plays.values() for p in found]
    told = [("start", p, "\n".join(m["content"] for m in p.opening)) for p in plays]
    told += [
        (step.tool or "reply", p, step.result or "") for p in plays for step in p.trajectory.steps
    ]
    told += [("scenarios", p, json.dumps(p.trajectory.scenario.data, default=str)) for p in plays]
    shown = {where: mask_keys(text) for where, _, text in told if holds_key(text)}
    for where, text in shown.items():
        found = KEY.search(text)
        what = f"what {where}() gives holds the value of {found[0] if found else 'a key'}"
        todo = "the policy reads it and is trained on it, and files mask it: leave it out"
        yield warning(what, place_of(s.env_class, where), todo)
    yield ok(f"no key of the environment is in what {len(plays)} episodes said")


def _told_after(plays: list[Played]) -> str:
    """Return the word that precedes the answer in nearly all prompts, with the first answer, or "".

    The common position distinguishes a leak from listed options and from chance matches.
    """
    behind: dict[str, list[str]] = defaultdict(list)
    for p in plays:
        answer = _words(MARKUP.sub(" ", read_turn(p.turns[-1]).words))
        text = _words(_prompt(p))
        size = len(answer)
        places = range(1, len(text) - size + 1) if answer else ()
        for word in {text[i - 1] for i in places if text[i : i + size] == answer}:
            behind[word].append(" ".join(answer))
    for word, answers in behind.items():
        if len(answers) >= MOSTLY * len(plays) and len(set(answers)) >= FEWEST:
            return f"{word} {answers[0]}"
    return ""


def _spelled(p: Played) -> str:
    """Return the JSON arguments of a call by gold that the prompt contains, or ""."""
    prompt = "".join(_prompt(p).split())
    for step in p.trajectory.steps:
        text = json.dumps(step.arguments, ensure_ascii=False)
        if step.tool and len(text) >= SHORTEST and "".join(text.split()) in prompt:
            return text
    return ""


def _prompt(p: Played) -> str:
    return "\n".join(m["content"] for m in p.opening)


def _words(text: str) -> list[str]:
    return WORD.findall(text.casefold())
