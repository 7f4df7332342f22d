"""Answers samples of Inspect well and badly, and prints what art's adapter and Inspect's eval give.

python inspect_scores.py FOLDER      where Inspect may write its logs

Run by an interpreter that has inspect_ai, with art on its path, in art's folder.
"""

from __future__ import annotations

import json
import sys
from copy import deepcopy
from itertools import islice

from inspect_ai import Task, eval
from inspect_ai.dataset import MemoryDataset
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import value_to_float

from art_cli import play_episode
from art_envs.adapters.inspect_env import Inspect

NUM = 6  # samples of each task
to_float = value_to_float()

for name in ("popularity", "biology", "theory_of_mind"):
    cfg = Inspect.Config(task=f"configs/adapters/inspect_tasks.py@{name}")
    envs = [Inspect(s, cfg) for s in islice(Inspect.scenarios(cfg, "train"), NUM)]
    answers = [how.format(env._target()) for env in envs for how in ("{}", "Say {}.", "no idea")]
    again = [Inspect(env.scenario, cfg) for env in envs for _ in range(3)]
    samples = [deepcopy(env.sample) for env in again]
    for number, sample in enumerate(samples):
        sample.id = number
    ours = [
        play_episode(env, lambda text=text: text) for env, text in zip(again, answers, strict=True)
    ]
    task = Task(
        dataset=MemoryDataset(samples), solver=again[0].task.solver, scorer=again[0].task.scorer
    )
    outputs = [ModelOutput.from_content("mockllm/model", text) for text in answers]
    for output in outputs:
        output.usage = ModelUsage()  # else it is counted, with a file that is fetched
    model = get_model("mockllm/model", custom_outputs=outputs)
    [log] = eval(task, model=model, log_dir=sys.argv[1], display="none", max_samples=1)
    for episode, text, sample in zip(ours, answers, log.samples or (), strict=True):
        theirs = {key: to_float(score.value) for key, score in (sample.scores or {}).items()}
        print(json.dumps([name, text, episode.reward, episode.metrics, theirs]))
