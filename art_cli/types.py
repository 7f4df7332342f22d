"""The data types that flow from an env through the engine to the trainer.

scenario = Scenario(id="train-0", split="train", seed=1)
one turn: Completion(token_ids=[5, 6, 2], logprobs=[-.1, -.7, -.2], finish_reason="stop", ...)
its effect on the env: Step(turn=0, tool="get_order", arguments={"order_id": "W42"}, result="{}")
its tokens in a trajectory: Sequence(ids=[9, 9, 5, 6, 2], mask=[0, 0, 1, 1, 1],
                                     engine_logprobs=[0, 0, -.1, -.7, -.2])
all episodes of the scenario: TrajectoryGroup([trajectory, ...])
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NotRequired, TypedDict

Split = Literal["train", "val", "test"]
TAGS = ("seat", "level", "kind")  # keys in a scenario's data
LONGEST_TAG = 40  # characters
StopReason = Literal["env", "max_turns", "timeout", "max_calls", "context", "agent", "error"]


class ToolCall(TypedDict):
    """A tool call in a message. Arguments stay unparsed text if the model's JSON is invalid."""

    name: str
    arguments: dict[str, Any]


class Message(TypedDict):
    """One chat message. An assistant's content is the text as sampled, including tool calls."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    tool_calls: NotRequired[list[ToolCall]]
    name: NotRequired[str]  # of the tool, for the role "tool"
    is_error: NotRequired[bool]  # for the role "tool": the call was refused or malformed
    weight: NotRequired[int]  # of an assistant's turn in a demonstration; 0: do not train on it


def tags_of(data: dict[str, Any]) -> dict[str, str]:
    """Return the TAGS in a scenario's data, by which reports group scenarios."""
    found = {tag: data.get(tag) for tag in TAGS}
    return {
        tag: str(value)
        for tag, value in found.items()
        if isinstance(value, str | int | float) and len(str(value)) <= LONGEST_TAG
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One instance of a task. All episodes of a group play the same scenario."""

    id: str  # unique within the env, e.g. "val-17"
    split: Split
    seed: int  # determines all randomness of the instance
    data: dict[str, Any] = field(default_factory=dict)  # made by the env's `scenarios()`

    @property
    def tags(self) -> dict[str, str]:
        """Its seat, level and kind, if `data` has them."""
        return tags_of(self.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The tokens that the engine sampled for one turn."""

    token_ids: list[int]  # including the end-of-turn token, if sampled
    logprobs: list[float]  # one per token, from the distribution that was sampled
    finish_reason: Literal["stop", "length"]
    policy_version: int  # of the weights that sampled the turn
    grammar: str | None = None  # that constrained the turn
    forced: frozenset[int] = frozenset()  # indices at which the grammar allowed only one token
    top_logprobs: list[dict[int, float]] = field(default_factory=list)  # one a token, if asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Constrained:
    """A part of a sequence, [begin, end), that was sampled under a grammar."""

    begin: int
    end: int
    grammar: str


@dataclass(slots=True, kw_only=True)
class Sequence:
    """Token ids that the model saw as one text. The first three lists have the same length."""

    ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)  # 1 for sampled tokens that had an alternative
    engine_logprobs: list[float] = field(default_factory=list)  # 0.0 where mask is 0
    constrained: list[Constrained] = field(default_factory=list)  # in order
    begins: list[int] = field(default_factory=list)  # start index of each sampled turn

    def extend_prompt(self, ids: list[int]) -> None:
        """Append tokens that the model reads but did not sample."""
        self.ids += ids
        self.mask += [0] * len(ids)
        self.engine_logprobs += [0.0] * len(ids)

    def extend_sampled(self, completion: Completion) -> None:
        """Append sampled tokens, which are trained on.

        Tokens that a grammar forced are not: their probability is 1 whatever the weights.
        """
        begin, num = len(self.ids), len(completion.token_ids)
        self.begins.append(begin)
        self.ids += completion.token_ids
        self.mask += [0 if i in completion.forced else 1 for i in range(num)]
        self.engine_logprobs += completion.logprobs
        if completion.grammar is not None:
            part = Constrained(begin=begin, end=begin + num, grammar=completion.grammar)
            self.constrained.append(part)

    def forget(self, begin: int) -> None:
        """Exclude the tokens from `begin` on from training: the client never received them."""
        self.mask[begin:] = [0] * (len(self.ids) - begin)
        self.engine_logprobs[begin:] = [0.0] * (len(self.ids) - begin)
        self.constrained = [c for c in self.constrained if c.end <= begin]
        self.begins = [b for b in self.begins if b < begin]

    def up_to(self, end: int) -> Sequence:
        """Return the first `end` tokens as a sequence."""
        return Sequence(
            ids=self.ids[:end],
            mask=self.mask[:end],
            engine_logprobs=self.engine_logprobs[:end],
            constrained=[c for c in self.constrained if c.begin < end],
            begins=[b for b in self.begins if b < end],
        )

    @property
    def num_sampled(self) -> int:
        """The number of sampled tokens that are trained on."""
        return sum(self.mask)


@dataclass(slots=True, kw_only=True)
class Step:
    """One action on the env and its result.

    a call   Step(turn=0, tool="get_order", arguments={"order_id": "W42"}, result="{...}")
    text     Step(turn=1, said="done", result=None)
    """

    turn: int  # index of the env turn, from 0; calls of one turn share it
    tool: str | None = None  # None: text for reply(); "": a malformed call
    arguments: dict[str, Any] = field(default_factory=dict)
    said: str = ""  # the text
    result: str | None = None  # None: the episode ended here, without a result
    is_error: bool = False  # the call was refused or malformed
    is_unknown: bool = False  # the episode offers no tool of this name


@dataclass(slots=True, kw_only=True)
class RewardParts:
    """The parts of a reward, which `art_cli/reward.py` combines. None: the part does not exist.

    RewardParts(env=1.0, judge=0.7, explanation="It finds the order before it cancels it.")
    """

    env: float | None = None  # the env's own score
    agent: float | None = None  # the reward that the user's own agent reported
    judge: float | None = None  # RULER's score, in [0, 1], relative to the siblings
    win: float | None = None  # against the untrained policy: 1, 0.5 for a tie, 0
    cost: float | None = None  # of invalid actions; subtracted
    is_gated: bool = False  # the judge's score is ignored because the env's is not positive
    explanation: str = ""  # by the judge, of `judge` or `win`

    def metrics(self) -> dict[str, float]:
        """Return the parts as metrics. The env's score is one of them if it is not the reward."""
        named = {"agent_reward": self.agent, "ruler_score": self.judge}
        named |= {"invalid_action_cost": self.cost}
        found = {name: value for name, value in named.items() if value is not None}
        is_judged = bool(found or self.explanation)
        return found | ({"env_reward": self.env} if is_judged and self.env is not None else {})


@dataclass(slots=True, kw_only=True)
class Trajectory:
    """The result of one rollout."""

    scenario: Scenario
    # The actions on the env, in order. Scores are based on them, not on the agent's history.
    steps: list[Step] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)  # the main conversation, for readers
    side_conversations: list[list[Message]] = field(default_factory=list)
    sequences: list[Sequence] = field(default_factory=list)  # more than one after a fork
    reward_parts: RewardParts = field(default_factory=RewardParts)
    reward: float | None = None  # from these parts; None: failed or not scored yet, not trained on
    advantage: float | None = None  # compared with its siblings; set before an update
    # One per sampled turn, in the order of `sequences`, if turns have separate advantages;
    # `advantage` is then their mean.
    turn_advantages: list[float] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)  # only logged; from the env or an agent
    logs: list[str] = field(default_factory=list)  # output of the user's own agent
    tools: list[dict[str, Any]] = field(default_factory=list)  # JSON schemas of the offered tools
    judge_context: str = ""  # facts that the env knows and the transcript may not contain
    stop_reason: StopReason = "env"
    policy_versions: list[int] = field(default_factory=list)  # one per call of the policy
    num_invalid: int = 0  # invalid or malformed calls
    truncated: bool = False  # a turn hit sampling.max_tokens, or the context was full
    error: str | None = None  # why reward is None; the output of a program follows the first line
    traceback: str = ""  # of the env's code, if it raised the error
    crash: str | None = None  # how the user's own agent failed, if it did
    duration: float = 0.0  # seconds
    num_written: int = 0  # tokens by a model behind an API, as counted by its server
    usd: float = 0.0  # cost of the models asked in the episode

    @property
    def failed(self) -> bool:
        """True if infrastructure failed. A trajectory that still awaits a judge has not failed."""
        return self.reward is None and self.error is not None

    @property
    def all_metrics(self) -> dict[str, float]:
        """Its own metrics and those of its reward's parts."""
        return self.metrics | self.reward_parts.metrics()

    @property
    def conversations(self) -> list[list[Message]]:
        """All conversations: the main one, then side conversations and forks."""
        return [self.messages, *self.side_conversations]

    @property
    def num_turns(self) -> int:
        """The number of env turns, however many policy calls an agent makes in one."""
        return len({step.turn for step in self.steps})

    @property
    def num_calls(self) -> int:
        """The number of calls of the policy."""
        return len(self.policy_versions)

    @property
    def num_sampled_turns(self) -> int:
        """The number of trained turns; with agent.use builtin, those of the env, in its order."""
        return sum(len(s.begins) for s in self.sequences)

    @property
    def num_tool_errors(self) -> int:
        """The number of calls that the env refused or that were malformed."""
        return sum(step.is_error for step in self.steps)

    @property
    def num_sampled(self) -> int:
        """The number of sampled tokens that are trained on, over all sequences."""
        return sum(s.num_sampled for s in self.sequences)

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        from art_cli.view import episode_html as html

        return html.of_trajectory(self)


@dataclass(slots=True)
class TrajectoryGroup:
    """All episodes of one scenario, which advantages compare with each other."""

    trajectories: list[Trajectory]

    @property
    def valid(self) -> list[Trajectory]:
        """The trajectories that have a reward."""
        return [t for t in self.trajectories if t.reward is not None]

    @property
    def rewards(self) -> list[float]:
        """The rewards of the valid trajectories, in order."""
        return [t.reward for t in self.trajectories if t.reward is not None]

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        from art_cli.view import episode_html as html

        return html.of_group(self.trajectories)
