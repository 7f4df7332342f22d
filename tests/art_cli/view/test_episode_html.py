"""What a notebook shows of an episode, its siblings, an evaluation."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import art_cli as art
from art_cli.terminal.text import hide
from art_cli.types import RewardParts, Step
from art_cli.view.episode_html import _brief

PAYLOAD = "</pre></div><script>alert(1)</script><img src=x onerror=alert(2)>\u202e\x1b[31m&lt;"
ALLOWED = {"div", "style", "article", "h3", "b", "span", "p", "pre", "details", "summary", "code"}
ALLOWED |= {"table", "tr", "td"}


class Markup(HTMLParser):
    """Reads all of it, and keeps what stands there as elements and as text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""
        self.depth = 0
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        self.depth += 1

    def handle_endtag(self, tag: str) -> None:
        self.depth -= 1

    def handle_data(self, data: str) -> None:
        self.text += data


def episode(reward: float | None, said: str = "it is done") -> art.Trajectory:
    call = f'I look. <tool_call>{{"name": "look", "arguments": {{"key": "{said}"}}}}</tool_call>'
    return art.Trajectory(
        scenario=art.Scenario(id=f"train-{said}", split="train", seed=1),
        messages=[
            {"role": "user", "content": "look it up"},
            {
                "role": "assistant",
                "content": f"<think>hm {said}</think>{call}",
                "tool_calls": [{"name": "look", "arguments": {"key": said}}],
            },
            {"role": "tool", "name": said, "content": said * 20, "is_error": True},
            {"role": "assistant", "content": said},
        ],
        side_conversations=[[{"role": "system", "content": said}]],
        steps=[Step(turn=0, tool="look"), Step(turn=1, said=said)],
        reward=reward,
        advantage=-0.5,
        metrics={said: 0.25},
        reward_parts=RewardParts(explanation=said),
        judge_context=said,
        error=None if reward is not None else said,
    )


def evaluation(trajectories: list[art.Trajectory]) -> art.Evaluation:
    groups = [art.TrajectoryGroup([t]) for t in trajectories]
    num = len(trajectories)
    return art.Evaluation(
        split="val", step=3, episodes=num, failed=0, reward=0.5, ci=0.1, metrics={}, groups=groups
    )


def test_nothing_that_was_said_becomes_markup() -> None:
    bad = [episode(0.5, PAYLOAD), episode(None, PAYLOAD)]
    for shown in (*bad, art.TrajectoryGroup(bad), evaluation(bad)):
        found = Markup(shown._repr_html_())
        assert set(found.tags) <= ALLOWED and found.attributes <= {"class"}
        assert found.depth == 0 and found.text.count("<script>alert(1)</script>") >= 8
        assert "\u202e" not in found.text and "\x1b" not in found.text
        assert r"\u202e\u001b[31m&lt;" in found.text


def test_an_episode_is_shown_with_its_numbers_and_calls() -> None:
    text = Markup(episode(0.5)._repr_html_()).text
    for part in ("reward 0.5", "advantage -0.5", "2 turns", "look(key=it is done)", "I look."):
        assert part in text, part
    assert "judge it is done" in text and "tool it is done (error)" in text


def test_siblings_stand_side_by_side_the_best_first_and_share_their_beginning() -> None:
    html = art.TrajectoryGroup([episode(0.25, "a"), episode(0.75, "b")])._repr_html_()
    text = Markup(html).text
    assert "What all 2 begin with: 1 message" in text and text.count("look it up") == 1
    assert text.index("reward 0.75") < text.index("reward 0.25")
    assert "a group without" in art.TrajectoryGroup([])._repr_html_()


def test_an_evaluation_shows_its_worst_episodes_and_how_many_there_are() -> None:
    html = evaluation([episode(n / 20, f"e{n}") for n in range(20)])._repr_html_()
    text = Markup(html).text
    assert "0.500 ± 0.100" in text and "12 of 20 episodes, the worst first" in text
    assert "train-e0" in text and "train-e19" not in text


def test_it_hides_secrets_and_leaves_the_rest_of_a_notebook_alone() -> None:
    hide("s3cret-value", "$KEY")
    shown = episode(0.5, "s3cret-value")
    html = shown._repr_html_()
    assert "s3cret-value" not in html and "$KEY" in html
    style = re.search(r"<style>(.*?)</style>", html, re.DOTALL)
    assert style
    rules = re.sub(r"/\*.*?\*/|@media[^{]*", "", style[1], flags=re.DOTALL)
    selectors = re.findall(r"([^{}]+)\{[^{}]*\}", rules)
    assert len(selectors) > 20 and all(s.strip().startswith(".art") for s in selectors)


def test_a_line_of_ninety_characters_is_shown_whole_and_a_longer_one_is_cut() -> None:
    assert _brief(" a\n b ") == "a b" and _brief(" \n") == "(empty)"
    assert _brief("x" * 90) == "x" * 90
    assert _brief("x" * 91) == f"{'x' * 90} ..."
