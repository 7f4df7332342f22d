"""Whole conversations under chat templates whose licences keep them out of this repository.

They come with the packages of TRL and of llama.cpp's bindings, which are fetched for it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from chat_models import (
    CHATML,
    GEMMA4,
    LFM,
    LLAMA,
    QWEN,
    TOOLS,
    ChatModel,
    Talk,
    call,
    qwen,
    result,
    user,
)
from own_venv import files_of

sys.path.append(str(Path(__file__).parents[1] / "art_cli" / "chat"))
from test_families import CANCEL, LOOK, MADE, MODELS, THOUGHT, row, talk

GEMMA = ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>")
COHERE = tuple(
    f"<|{end}_{part}|>"
    for part in ("THINKING", "ACTION", "RESPONSE", "TOOL_RESULT")
    for end in ("START", "END")
)
COHERE = (*COHERE, "<BOS_TOKEN>", "<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>")
NEMOTRON = ("<s>", "</s>", "<SPECIAL_10>", "<SPECIAL_11>", "<SPECIAL_12>")
LFM_TOKENS = ("<|startoftext|>", *CHATML[1:], *LFM)


def llama(name: str, file: str) -> ChatModel:
    ends = ("<|eom_id|>", "<|end_of_text|>")
    return ChatModel(
        name=name, file=file, special=LLAMA, eos="<|eot_id|>", bos=LLAMA[0], more_eos=ends
    )


def gemma(name: str, file: str) -> ChatModel:
    end = ("<end_of_turn>",)
    return ChatModel(name=name, file=file, special=GEMMA, eos="<eos>", bos="<bos>", more_eos=end)


def gemma4(name: str, file: str) -> ChatModel:
    special = ("<bos>", "<eos>", *GEMMA4)
    ends = ("<turn|>", "<|tool_response>")
    return ChatModel(name=name, file=file, special=special, eos="<eos>", bos="<bos>", more_eos=ends)


def lfm(name: str, file: str) -> ChatModel:
    return ChatModel(
        name=name, file=file, special=LFM_TOKENS, eos="<|im_end|>", bos="<|startoftext|>"
    )


ZERO = (0, 0, 0)
TRL = {  # with the forks behind results, words and results, without thinking and with it
    llama("llama-3", "llama3.jinja"): (ZERO, ZERO),
    llama("llama-3.1", "llama3_1.jinja"): (ZERO, ZERO),
    llama("llama-3.2", "llama3_2.jinja"): (ZERO, ZERO),
    gemma("gemma-2", "gemma.jinja"): (ZERO, ZERO),
    gemma("gemma-3", "gemma3.jinja"): (ZERO, ZERO),
    gemma4("gemma-4", "gemma4_v5.jinja"): (ZERO, (0, 1, 0)),
    lfm("lfm2", "lfm2_v2.jinja"): (ZERO, ZERO),
    lfm("lfm2.5", "lfm2_2_5_v2.jinja"): (ZERO, (0, 1, 0)),
    qwen("nemotron-3-nano", file="nemotron_3_nano.jinja"): ((1, 1, 1), (0, 1, 0)),
    qwen("qwen2.5-vl", file="qwen2_5_vl.jinja"): (ZERO, ZERO),
}
LLAMA_CPP = {
    ChatModel(
        name="command-r7b",
        file="CohereForAI-c4ai-command-r7b-12-2024-tool_use.jinja",
        special=COHERE,
        eos="<|END_OF_TURN_TOKEN|>",
        bos="<BOS_TOKEN>",
    ): None,  # it numbers the calls of a conversation, where a demonstration's turn has its own
    ChatModel(
        name="nemotron-nano-v2",
        file="NVIDIA-Nemotron-Nano-v2.jinja",
        special=NEMOTRON,
        added=(*QWEN, "<TOOLCALL>", "</TOOLCALL>"),
        eos="<SPECIAL_12>",
        bos="<s>",
    ): ((1, 1, 1), (1, 1, 1)),
    ChatModel(
        name="hermes-3",
        file="NousResearch-Hermes-3-Llama-3.1-8B-tool_use.jinja",
        special=("<|begin_of_text|>", *CHATML[1:]),
        added=QWEN[:2],
        eos="<|im_end|>",
        bos="<|begin_of_text|>",
    ): ((0, 1, 0), (0, 1, 0)),
    llama("llama-3.3", "meta-llama-Llama-3.3-70B-Instruct.jinja"): (ZERO, ZERO),
    qwen("qwq-32b", file="Qwen-QwQ-32B.jinja"): ((1, 1, 1), (1, 1, 1)),
}


@pytest.fixture(scope="module")
def trl() -> Path:
    return files_of("trl-templates", "trl==1.16.0", ".jinja")


@pytest.fixture(scope="module")
def llama_cpp() -> Path:
    options = ("--no-binary", ":all:")
    return files_of("llama-templates", "llama_cpp_python==0.3.36", ".jinja", *options)


def test_a_conversation_with_calls(trl: Path, llama_cpp: Path) -> None:
    for folder, models in ((trl, TRL), (llama_cpp, LLAMA_CPP)):
        for model, expected in models.items():
            for thought, forks in zip(("", THOUGHT), expected or (), strict=bool(expected)):
                for calls in (CANCEL, CANCEL + LOOK):
                    assert talk(model, thought, calls, folder) == list(forks), model.name


def test_the_table_in_the_docs_says_what_the_templates_do(trl: Path, llama_cpp: Path) -> None:
    rows = [
        row(model.renderer(TOOLS, folder), model.name)
        for folder, models in ((trl, TRL), (llama_cpp, LLAMA_CPP))
        for model in models
    ]
    missing = [each for each in rows if each not in MODELS.read_text()]
    assert missing == [], "\n".join(rows)


def test_two_calls_under_a_template_that_writes_one_are_answered_both(trl: Path) -> None:
    model = next(m for m in TRL if m.name == "llama-3.1")
    talk = Talk(model.renderer(TOOLS, trl))
    said = talk.say(CANCEL + LOOK)
    assert talk.renderer.read(said).calls == MADE and "; " in said
    talk.hear(result("a"), result("b"))
    assert talk.renderer.text(talk.conversation.said).count("ipython") >= 2


def test_a_system_message_that_gemma_2_refuses_comes_with_the_first_question(trl: Path) -> None:
    model = next(m for m in TRL if m.name == "gemma-2")
    renderer = model.renderer(TOOLS, trl)
    text = renderer.text([{"role": "system", "content": "zbez"}, user("zaskz")])
    assert text.startswith("<bos><start_of_turn>user\nzbez\n\nYou may call these tools:")
    assert text.index("zaskz") > text.index("</tools>") and text.count("<start_of_turn>") == 2


def test_two_results_are_one_turn_where_roles_must_alternate(trl: Path) -> None:
    model = next(m for m in TRL if m.name == "gemma-3")
    talk = Talk(model.renderer(TOOLS, trl))
    talk.say(CANCEL + LOOK)
    before = len(talk.conversation.ids)
    talk.hear(result("a"), result("b"))
    new = talk.renderer._tokenizer.decode(talk.conversation.ids[before:])
    asked = "".join(f"<tool_response>\n{r}\n</tool_response>\n" for r in "ab").rstrip("\n")
    assert asked in new and new.count("<start_of_turn>") == 2
    assert talk.forks == 0


def test_gemma_4_goes_on_in_the_same_turn_behind_the_results(trl: Path) -> None:
    model = next(m for m in TRL if m.name == "gemma-4")
    talk = Talk(model.renderer(TOOLS, trl))
    own = talk.say(call("look_up", order="17"))
    assert own == '<|tool_call>call:look_up{order:<|"|>17<|"|>}<tool_call|>'
    assert talk.renderer._tokenizer.decode(talk.sampled[0][-1:]) == "<|tool_response>"
    talk.hear(result("ok"))
    assert talk.forks == 0 and talk.is_whole()
