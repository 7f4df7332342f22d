"""The nouns: what flows from an env through the engine to the trainer.

scenario = Scenario(id="train-0", split="train", seed=1)
one turn: Completion(token_ids=[5, 6, 2], logprobs=[-.1, -.7, -.2], finish_reason="stop", ...)
what the env did of it: Step(turn=0, tool="get_order", arguments={"order_id": "W42"}, result="{}")
a trajectory of it: Sequence(ids=[9, 9, 5, 6, 2], mask=[0, 0, 1, 1, 1],
                             engine_logprobs=[0, 0, -.1, -.7, -.2])
its siblings: TrajectoryGroup([trajectory, ...])
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NotRequired, TypedDict

Split = Literal["train", "val", "test"]
TAGS = ("seat", "level", "kind")  # of a scenario's data
LONGEST_TAG = 40  # characters
StopReason = Literal["env", "max_turns", "timeout", "max_calls", "context", "agent", "error"]


class ToolCall(TypedDict):
    """A call of a tool in a message. Arguments stay unparsed where the model's JSON is broken."""

    name: str
    arguments: dict[str, Any]


class Message(TypedDict):
    """One chat message. An assistant's content is the text as sampled, tool calls included."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    tool_calls: NotRequired[list[ToolCall]]
    name: NotRequired[str]  # of the tool, on a message with role "tool"
    is_error: NotRequired[bool]  # on a message with role "tool": the call was refused or malformed
    weight: NotRequired[int]  # of an assistant's turn of a demonstration; 0: it is not trained


def tags_of(data: dict[str, Any]) -> dict[str, str]:
    """Return what of TAGS a scenario's data has: by these, scenarios are grouped."""
    found = {tag: data.get(tag) for tag in TAGS}
    return {
        tag: str(value)
        for tag, value in found.items()
        if isinstance(value, str | int | float) and len(str(value)) <= LONGEST_TAG
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One instance of a task. Siblings of a group play the same scenario."""

    id: str  # unique within the env, e.g. "val-17"
    split: Split
    seed: int  # all randomness of the instance comes from it
    data: dict[str, Any] = field(default_factory=dict)  # what the env's generator made

    @property
    def tags(self) -> dict[str, str]:
        """Its seat, level and kind, where `data` has them."""
        return tags_of(self.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The tokens that the engine sampled in one turn."""

    token_ids: list[int]  # with the end-of-turn token, where one was sampled
    logprobs: list[float]  # one a token, of the distribution that was sampled from
    finish_reason: Literal["stop", "length"]
    policy_version: int  # of the weights that really answered
    grammar: str | None = None  # that the turn was held to
    forced: frozenset[int] = frozenset()  # places where the grammar allowed one token alone
    top_logprobs: list[dict[int, float]] = field(default_factory=list)  # one a token, if asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Constrained:
    """A part of a sequence that was sampled under a grammar."""

    begin: int
    end: int
    grammar: str


@dataclass(slots=True, kw_only=True)
class Sequence:
    """Token ids that the model saw as one text. The first three lists have the same length."""

    ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)  # 1 on sampled tokens that had an alternative
    engine_logprobs: list[float] = field(default_factory=list)  # 0.0 where mask is 0
    constrained: list[Constrained] = field(default_factory=list)  # in order
    begins: list[int] = field(default_factory=list)  # of each turn that was sampled

    def extend_prompt(self, ids: list[int]) -> None:
        """Append tokens that the model reads but did not sample."""
        self.ids += ids
        self.mask += [0] * len(ids)
        self.engine_logprobs += [0.0] * len(ids)

    def extend_sampled(self, completion: Completion) -> None:
        """Append tokens that the model sampled; these are trained on.

        Not those that a grammar left no choice about: their probability is 1, whatever the weights.
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
        """Train on none of the tokens from `begin` on: nobody received them."""
        self.mask[begin:] = [0] * (len(self.ids) - begin)
        self.engine_logprobs[begin:] = [0.0] * (len(self.ids) - begin)
        self.constrained = [c for c in self.constrained if c.end <= begin]
        self.begins = [b for b in self.begins if b < begin]

    def up_to(self, end: int) -> Sequence:
        """Return the first tokens alone."""
        return Sequence(
            ids=self.ids[:end],
            mask=self.mask[:end],
            engine_logprobs=self.engine_logprobs[:end],
            constrained=[c for c in self.constrained if c.begin < end],
            begins=[b for b in self.begins if b < end],
        )

    @property
    def num_sampled(self) -> int:
        """Tokens that the model sampled and that are trained on."""
        return sum(self.mask)


@dataclass(slots=True, kw_only=True)
class Step:
    """One thing that the env was asked to do, and what came back.

    a call   Step(turn=0, tool="get_order", arguments={"order_id": "W42"}, result="{...}")
    words    Step(turn=1, said="done", result=None)
    """

    turn: int  # of the env, from 0: the calls of one turn share it
    tool: str | None = None  # None: words, which reply() heard; "": a call that nobody could read
    arguments: dict[str, Any] = field(default_factory=dict)
    said: str = ""  # the words
    result: str | None = None  # None: nothing came back, since the episode ended there
    is_error: bool = False  # the call was refused or malformed
    is_unknown: bool = False  # the episode offers no tool of this name


@dataclass(slots=True, kw_only=True)
class RewardParts:
    """The parts of a reward; `art_cli/reward.py` combines them. None: there is no such part.

    RewardParts(env=1.0, judge=0.7, explanation="It finds the order before it cancels it.")
    """

    env: float | None = None  # the env's own score
    agent: float | None = None  # what the user's own agent gave itself
    judge: float | None = None  # RULER's score, in [0, 1], relative to the siblings
    win: float | None = None  # against the untrained policy: 1, 0.5 for a tie, 0
    cost: float | None = None  # of calls that could not be made; taken off
    is_gated: bool = False  # the judge's score does not count, since the env's is not positive
    explanation: str = ""  # the judge's, of `judge` or `win`

    def metrics(self) -> dict[str, float]:
        """Return them as metrics. The env's score is one where it is not the reward itself."""
        named = {"agent_reward": self.agent, "ruler_score": self.judge}
        named |= {"invalid_action_cost": self.cost}
        found = {name: value for name, value in named.items() if value is not None}
        is_judged = bool(found or self.explanation)
        return found | ({"env_reward": self.env} if is_judged and self.env is not None else {})


@dataclass(slots=True, kw_only=True)
class Trajectory:
    """The result of one rollout."""

    scenario: Scenario
    # What the env did, in its order: what scores go by, whatever the agent makes of its history.
    steps: list[Step] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)  # the main conversation, to be read
    side_conversations: list[list[Message]] = field(default_factory=list)
    sequences: list[Sequence] = field(default_factory=list)  # more than one after a fork
    reward_parts: RewardParts = field(default_factory=RewardParts)
    reward: float | None = None  # of these parts; None: infrastructure failed; never trained on
    advantage: float | None = None  # how much better than its siblings; set before an update
    # Where the turns have advantages of their own: one for each that was sampled, in the order of
    # `sequences`; `advantage` is their mean.
    turn_advantages: list[float] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)  # only logged: the env's, an agent's
    logs: list[str] = field(default_factory=list)  # what the user's own agent printed
    tools: list[dict[str, Any]] = field(default_factory=list)  # JSON schemas, as of ToolSpec
    judge_context: str = ""  # what the env knows and the transcript may not say
    stop_reason: StopReason = "env"
    policy_versions: list[int] = field(default_factory=list)  # one a call of the policy
    num_invalid: int = 0  # calls that could not be made, whatever the env would have said
    truncated: bool = False  # a turn hit sampling.max_tokens, or the context was full
    error: str | None = None  # why reward is None; what a program printed follows its first line
    traceback: str = ""  # of the env's code, where that raised the error
    crash: str | None = None  # how the user's own agent failed; None: it did not, or is not theirs
    duration: float = 0.0  # seconds
    num_written: int = 0  # tokens of a model that was asked, as its server counts them
    usd: float = 0.0  # what the models that were asked in it have cost

    @property
    def failed(self) -> bool:
        """True if infrastructure failed. A trajectory that only a judge can score has not."""
        return self.reward is None and self.error is not None

    @property
    def all_metrics(self) -> dict[str, float]:
        """Its metrics, and those of its reward's parts."""
        return self.metrics | self.reward_parts.metrics()

    @property
    def conversations(self) -> list[list[Message]]:
        """All that was said: the main conversation, then those beside it and what forked off."""
        return [self.messages, *self.side_conversations]

    @property
    def num_turns(self) -> int:
        """The env's turns, however many calls of the policy an agent makes of one."""
        return len({step.turn for step in self.steps})

    @property
    def num_calls(self) -> int:
        """Completions of the engine."""
        return len(self.policy_versions)

    @property
    def num_sampled_turns(self) -> int:
        """Turns that are trained on; with agent.use builtin, those of the env, in its order."""
        return sum(len(s.begins) for s in self.sequences)

    @property
    def num_tool_errors(self) -> int:
        """Calls that the env refused, or that could not be read."""
        return sum(step.is_error for step in self.steps)

    @property
    def num_sampled(self) -> int:
        """Tokens that the model sampled, over all sequences."""
        return sum(s.num_sampled for s in self.sequences)

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        from art_cli.view import episode_html as html

        return html.of_trajectory(self)


@dataclass(slots=True)
class TrajectoryGroup:
    """The siblings of one scenario; advantages compare them with each other."""

    trajectories: list[Trajectory]

    @property
    def valid(self) -> list[Trajectory]:
        """Trajectories that have a reward."""
        return [t for t in self.trajectories if t.reward is not None]

    @property
    def rewards(self) -> list[float]:
        """Rewards of the valid trajectories, in order."""
        return [t.reward for t in self.trajectories if t.reward is not None]

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        from art_cli.view import episode_html as html

        return html.of_group(self.trajectories)
