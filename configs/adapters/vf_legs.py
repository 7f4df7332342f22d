"""A taskset of verifiers 0.4: counting legs, a puzzle of Reasoning Gym, in one turn."""

import re

import reasoning_gym
import verifiers.v1 as vf

__all__ = ["LegsTaskset"]
ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


class LegsConfig(vf.TasksetConfig):
    """What can be set under env.args.args.taskset."""

    num_tasks: int = 1000
    max_animals: int = 2


class LegsData(vf.TaskData):
    """A puzzle, as the library made it."""

    entry: dict


class LegsTask(vf.Task[LegsData]):
    """One question, and what it is worth."""

    @vf.reward
    async def correct(self, trace: vf.Trace) -> float:
        """Return the library's own score of the last answer."""
        found = ANSWER.findall(trace.last_reply)
        score = reasoning_gym.get_score_answer_fn("leg_counting")
        return score(found[-1].strip() if found else None, self.data.entry)


class LegsTaskset(vf.Taskset[LegsTask, LegsConfig]):
    """Puzzles of the seed 0."""

    def load(self) -> list[LegsTask]:
        """Return them."""
        entries = reasoning_gym.create_dataset(
            "leg_counting",
            seed=0,
            size=self.config.num_tasks,
            min_animals=1,
            max_animals=self.config.max_animals,
        )
        system = "Answer as in <answer>12</answer>."
        return [
            LegsTask(LegsData(prompt=each["question"], system_prompt=system, entry=each))
            for each in entries
        ]
