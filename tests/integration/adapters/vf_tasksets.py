"""A taskset of verifiers 0.4 for the tests: sums of one turn or by a tool, and a talk of three."""

from __future__ import annotations

import verifiers.v1 as vf

__all__ = ["SumEnv", "SumTaskset"]
ROWS = 12


class Adder(vf.Toolset[vf.ToolsetConfig]):
    """The tool, in a server of its own."""

    TOOL_PREFIX = "sum"

    @vf.tool
    def add(self, a: int, b: int) -> str:
        """Add two numbers."""
        return str(a + b)


class SumTaskConfig(vf.TaskConfig):
    """Which of the three it is."""

    kind: str = "sums"


class SumData(vf.TaskData):
    """A row."""

    answer: str


class SumTask(vf.Task[SumData, vf.State, SumTaskConfig]):
    """The sum must end the last words; every call and every turn counts a little."""

    @classmethod
    def toolsets(cls, config: SumTaskConfig) -> list[vf.Toolset]:
        """Return the tool, where it is by a tool."""
        return [Adder(vf.ToolsetConfig())] if config.kind == "tools" else []

    @vf.reward
    async def says_sum(self, trace: vf.Trace) -> float:
        """Return whether it was said."""
        return float(trace.last_reply.endswith(self.data.answer))

    @vf.reward(weight=0.1)
    async def calls(self, trace: vf.Trace) -> float:
        """Return how many results the model read."""
        return float(len(trace.tool_messages))

    @vf.metric
    async def turns(self, trace: vf.Trace) -> float:
        """Return how often it spoke."""
        return float(trace.num_turns)


class SumConfig(vf.TasksetConfig):
    """Settings."""

    task: SumTaskConfig = SumTaskConfig()
    endless: bool = False


class SumTaskset(vf.Taskset[SumTask, SumConfig]):
    """The rows."""

    @property
    def bounded(self) -> bool:
        """See Taskset."""
        return not self.config.endless and super().bounded

    def load(self) -> list[SumTask]:
        """Return them; in a talk, who uses it opens it."""
        talks = self.config.task.kind == "talk"
        return [
            SumTask(
                SumData(prompt=None if talks else f"What is {n} + 7?", answer=str(n + 7)),
                self.config.task,
            )
            for n in range(ROWS)
        ]


class SumEnv(vf.SingleAgentEnv):
    """Plays a row, or asks three times."""

    async def run(self, task: vf.Task, agents: vf.Agents) -> None:
        """See Env."""
        if task.data.prompt is not None:
            await agents.agent.run(task)
            return
        async with agents.agent.interaction(task) as talk:
            for number in range(3):
                if (await talk.turn(f"question {number}")).terminated:
                    break


if __name__ == "__main__":
    Adder.run()
