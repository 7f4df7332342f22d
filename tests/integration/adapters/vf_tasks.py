"""Environments of verifiers for the tests: puzzles of one turn, tools, and a talk of three."""

from __future__ import annotations

from typing import Any

import verifiers as vf
from datasets import Dataset

ROWS = 12


def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: the first
        b: the second
    """
    return a + b


def called_together(completion: Any) -> float:
    """Return how many calls the first turn made."""
    return float(len(completion[0].tool_calls or ()))


def says_sum(completion: Any, answer: str) -> float:
    """Return whether the model's last words are the sum."""
    said = [str(m.content or "") for m in completion if m.role == "assistant"]
    return float(said[-1].endswith(answer))


class Talk(vf.MultiTurnEnv):
    """Asks three times, and ends with words of its own."""

    async def env_response(self, messages: Any, state: Any, **more: Any) -> Any:
        """Ask again."""
        number = len(state["trajectory"])
        if number == 3:
            state["final_env_response"] = [{"role": "user", "content": "That is all."}]
            return state["final_env_response"]
        return [{"role": "user", "content": f"question {number + 1}"}]


def load_environment(kind: str, data_set: str = "") -> vf.Environment:
    """Return one of the environments."""
    if kind == "puzzles":
        return vf.ReasoningGymEnv(gym=data_set, num_train_examples=ROWS, num_eval_examples=ROWS)
    rows = [
        {"question": f"What is {n} + 7?", "answer": str(n + 7), "info": {"number": n}}
        for n in range(ROWS)
    ]
    data = Dataset.from_list(rows)
    rubric = vf.Rubric(funcs=[says_sum, called_together], weights=[1.0, 0.1])
    if kind == "tools":
        return vf.ToolEnv(dataset=data, tools=[add], max_turns=4, rubric=rubric)
    return Talk(dataset=data, system_prompt="Talk.", rubric=vf.Rubric(funcs=[says_sum]))
