"""Tasks of Inspect over the examples that come with it."""

from inspect_ai import Task, task
from inspect_ai.dataset import FieldSpec, example_dataset
from inspect_ai.scorer import includes, match
from inspect_ai.solver import chain_of_thought, generate, system_message


@task
def popularity() -> Task:
    """Return statements to agree with or not."""
    fields = FieldSpec(input="question", target="answer_matching_behavior")
    solver = [system_message("Answer with Yes or No."), generate()]
    return Task(dataset=example_dataset("popularity", fields), solver=solver, scorer=match())


@task
def biology() -> Task:
    """Return questions with answers of a word or two."""
    fields = FieldSpec(input="question", target="answer")
    dataset = example_dataset("biology_qa", fields)
    return Task(dataset=dataset, solver=generate(), scorer=[includes(), match(location="exact")])


@task
def theory_of_mind() -> Task:
    """Return stories, and where somebody thinks that a thing is."""
    solver = [chain_of_thought(), generate()]
    return Task(dataset=example_dataset("theory_of_mind"), solver=solver, scorer=includes())
