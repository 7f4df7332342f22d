"""The table of formats in which models write tool calls.

An entry says how calls are read and written, and the shape that errors show. A model's format is
the one that can read calls written by its chat template. If a template only describes calls, it is
the one whose `mark` the description contains.
"""

from __future__ import annotations

import re
from typing import Any

from art_cli.chat.tool_formats.format import (
    ARGUMENTS,
    KEY,
    NAME,
    NUMBER,
    VALUE,
    Pairs,
    ToolFormat,
    between,
)
from art_cli.chat.tool_formats.harmony import read_harmony
from art_cli.chat.tool_formats.readers import (
    DSML_PARAMETER,
    GLM_PARAMETER,
    INVOKE,
    MINIMAX_PARAMETER,
    QWEN_PARAMETER,
    gemma_object,
    json_calls,
    json_names,
    json_object,
    named_calls,
    python_calls,
    tagged,
)
from art_cli.chat.turns import TOOL_CALL_FORMAT

NINE = re.compile(r"[A-Za-z0-9]{9}")
OBJECT = '{"name": <name>, "arguments": <object>}'
OBJECTS: Any = {"call": f'{{"name": "{NAME}", "arguments": {ARGUMENTS}}}', "between": ", "}
PYTHON: Any = {
    "call": f"{NAME}({ARGUMENTS})",
    "pairs": Pairs(text=f"{KEY}={VALUE}", between=", ", python=True),
}
DEEPSEEK = between("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")
DEEPSEEK_END = r"(?:<｜tool▁call▁end｜>|\Z)"

HERMES = ToolFormat(
    name="hermes",
    shape=TOOL_CALL_FORMAT,
    section=between("<tool_call>", "</tool_call>"),
    read=json_calls(one=True),
    call=f'<tool_call>{{"name": "{NAME}", "arguments": {ARGUMENTS}}}</tool_call>',
    between="\n",
    mark="<tool_call>",
    writes=True,
    serves="hermes",
)

FORMATS = (
    HERMES,
    ToolFormat(
        name="qwen_xml",
        shape="<tool_call><function=NAME><parameter=KEY>\\nVALUE\\n</parameter></function></tool_call>",
        section=between(
            "<(?:seed:)?tool_call>",
            "(?<=</function>)</(?:seed:)?tool_call>|(?<=</function>)\n</(?:seed:)?tool_call>"
            "|</(?:seed:)?tool_call>(?=\\s*(?:<(?:seed:)?tool_call>|\\Z))",
        ),
        read=named_calls(
            r"<function=(?P<name>[^>\n]+)>(?P<arguments>.*?)</function>(?=\s*(?:<function=|\Z))",
            tagged(QWEN_PARAMETER),
        ),
        call=f"<tool_call>\n<function={NAME}>\n{ARGUMENTS}</function>\n</tool_call>",
        between="\n",
        pairs=Pairs(text=f"<parameter={KEY}>\n{VALUE}\n</parameter>\n"),
        serves="qwen3_coder",
    ),
    ToolFormat(
        name="glm",
        shape="<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>",
        section=between(
            "<tool_call>",
            "(?<=</arg_value>)\n?</tool_call>|</tool_call>(?=\\s*(?:<tool_call>|\\Z))",
        ),
        read=named_calls(
            r"(?P<name>[^\s<]+)\s*(?P<arguments>(?:<arg_key>.*)?)\Z", tagged(GLM_PARAMETER)
        ),
        call=f"<tool_call>{NAME}\n{ARGUMENTS}</tool_call>",
        between="\n",
        pairs=Pairs(text=f"<arg_key>{KEY}</arg_key>\n<arg_value>{VALUE}</arg_value>\n"),
        serves="glm45",
    ),
    ToolFormat(
        name="llama3_json",
        shape='{"name": <name>, "parameters": <object>}',
        section=re.compile(
            r'\A\s*(?:<\|python_tag\|>)?(?P<body>\s*\{\s*"(?:name|parameters)".*)\Z', re.S
        ),
        read=json_calls(arguments=("parameters", "arguments")),
        call=f'{{"name": "{NAME}", "parameters": {ARGUMENTS}}}',
        between="; ",
        tags="<|python_tag|>",
        writes=True,
        serves="llama3_json",
    ),
    ToolFormat(
        name="pythonic",
        shape="[NAME(KEY=VALUE)]",
        section=re.compile(
            r"\A\s*(?:<\|python_start\|>)?\s*"
            r"(?P<body>\[\s*[A-Za-z_][\w.]*\(.*?)\s*(?:<\|python_end\|>)?\s*\Z",
            re.S,
        ),
        read=python_calls,
        opening="[",
        between=", ",
        closing="]",
        **PYTHON,
        tags="<|python_start|><|python_end|>",
        writes=True,
        serves="pythonic",
    ),
    ToolFormat(
        name="mistral",
        shape="[TOOL_CALLS]NAME[ARGS]<object>",
        section=re.compile(r"\[TOOL_CALLS\](?P<body>(?!\s*[\[{]).*?)(?=\[TOOL_CALLS\]|\Z)", re.S),
        read=named_calls(
            r"(?P<name>[^\s\[{]+)(?:\[CALL_ID\](?P<id>\w*))?\[ARGS\](?P<arguments>.*)\Z",
            json_object,
        ),
        call=f"[TOOL_CALLS]{NAME}[ARGS]{ARGUMENTS}",
        tags="[CALL_ID]",
        id=NINE,
        serves="mistral",
    ),
    ToolFormat(
        name="mistral_list",
        shape=f"[TOOL_CALLS][{OBJECT}]",
        section=re.compile(r"\[TOOL_CALLS\](?P<body>.*)\Z", re.S),
        read=json_calls(),
        opening="[TOOL_CALLS][",
        **OBJECTS,
        closing="]",
        id=NINE,
        serves="mistral",
    ),
    ToolFormat(
        name="deepseek_v3",
        shape="<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME\\n```json\\n<object>"
        "\\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        section=DEEPSEEK,
        read=named_calls(
            r"<｜tool▁call▁begin｜>function<｜tool▁sep｜>(?P<name>[^\n]+)\n```json\n"
            rf"(?P<arguments>.*?)\n```{DEEPSEEK_END}",
            json_object,
        ),
        call=f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{NAME}\n```json\n{ARGUMENTS}\n```<｜tool▁call▁end｜>",
        opening="<｜tool▁calls▁begin｜>",
        between="\n",
        closing="<｜tool▁calls▁end｜>",
        serves="deepseek_v3",
    ),
    ToolFormat(
        name="deepseek_v31",
        shape="<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>NAME<｜tool▁sep｜><object>"
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        section=DEEPSEEK,
        read=named_calls(
            rf"<｜tool▁call▁begin｜>(?P<name>[^\n<]+)<｜tool▁sep｜>(?P<arguments>.*?){DEEPSEEK_END}",
            json_object,
        ),
        call=f"<｜tool▁call▁begin｜>{NAME}<｜tool▁sep｜>{ARGUMENTS}<｜tool▁call▁end｜>",
        opening="<｜tool▁calls▁begin｜>",
        closing="<｜tool▁calls▁end｜>",
        serves="deepseek_v31",
    ),
    ToolFormat(
        name="deepseek_dsml",
        shape='<｜DSML｜function_calls><｜DSML｜invoke name="NAME"><｜DSML｜parameter name="KEY" '
        'string="true|false">VALUE</｜DSML｜parameter></｜DSML｜invoke></｜DSML｜function_calls>',
        section=between("<｜DSML｜(?:function|tool)_calls>", "</｜DSML｜(?:function|tool)_calls>"),
        read=named_calls(INVOKE.format("｜DSML｜"), tagged(DSML_PARAMETER)),
        call=f'<｜DSML｜invoke name="{NAME}">\n{ARGUMENTS}</｜DSML｜invoke>\n',
        opening="<｜DSML｜function_calls>\n",
        closing="</｜DSML｜function_calls>",
        pairs=Pairs(
            text=f'<｜DSML｜parameter name="{KEY}" string="true">{VALUE}</｜DSML｜parameter>\n',
            other=f'<｜DSML｜parameter name="{KEY}" string="false">{VALUE}</｜DSML｜parameter>\n',
        ),
        serves="deepseek_v32",
    ),
    ToolFormat(
        name="harmony",
        shape="<|channel|>commentary to=functions.NAME <|constrain|>json<|message|><object>"
        "<|call|>",
        section=re.compile(r"(?!)(?P<body>)"),  # read_harmony reads the whole turn
        read=json_calls(),
        call=f"<|channel|>commentary to=functions.{NAME} <|constrain|>json<|message|>{ARGUMENTS}"
        "<|call|>",
        mark="<|channel|>",
        tags="<|start|><|end|>",
        turn=read_harmony,
        serves="openai",
    ),
    ToolFormat(
        name="gemma4",
        shape='<|tool_call>call:NAME{KEY:<|"|>TEXT<|"|>,KEY:NUMBER}<tool_call|>',
        section=between(r"<\|tool_call>", r"<tool_call\|>"),
        read=named_calls(r"call:(?P<name>[^\s{]+)(?P<arguments>\{.*\})\Z", gemma_object),
        call=f"<|tool_call>call:{NAME}{{{ARGUMENTS}}}<tool_call|>",
        pairs=Pairs(
            text=f'{KEY}:<|"|>{VALUE}<|"|>', other=f"{KEY}:{VALUE}", between=",", bare=True
        ),
        mark="<|tool_call>",
        serves="gemma4",
    ),
    ToolFormat(
        name="gemma3",
        shape="```tool_code\\nNAME(KEY=VALUE)\\n```",
        section=between("```tool_code\n", "```"),
        read=python_calls,
        opening="```tool_code\n",
        between="\n",
        closing="\n```",
        **PYTHON,
        mark="```tool_code",
        writes=True,
    ),
    ToolFormat(
        name="phi",
        shape=f"<|tool_call|>[{OBJECT}]<|/tool_call|>",
        section=between(r"<\|tool_call\|>", r"<\|/tool_call\|>"),
        read=json_calls(),
        opening="<|tool_call|>[",
        **OBJECTS,
        closing="]<|/tool_call|>",
        mark="<|/tool_call|>",
        writes=True,
    ),
    ToolFormat(
        name="granite",
        shape=f"<|tool_call|>[{OBJECT}]",
        section=re.compile(r"<\|tool_call\|>(?P<body>.*)\Z", re.S),
        read=json_calls(),
        opening="<|tool_call|>[",
        **OBJECTS,
        closing="]",
        mark="<|tool_call|>",
        writes=True,
        serves="granite",
    ),
    ToolFormat(
        name="kimi",
        shape="<|tool_calls_section_begin|><|tool_call_begin|>functions.NAME:0"
        "<|tool_call_argument_begin|><object><|tool_call_end|><|tool_calls_section_end|>",
        section=between(r"<\|tool_calls_section_begin\|>", r"<\|tool_calls_section_end\|>"),
        read=named_calls(
            r"<\|tool_call_begin\|>\s*(?P<id>(?:functions\.)?(?P<name>[^\s<]+?):\d+)\s*"
            r"<\|tool_call_argument_begin\|>(?P<arguments>.*?)(?:<\|tool_call_end\|>|\Z)",
            json_object,
        ),
        call=f"<|tool_call_begin|>functions.{NAME}:{NUMBER}<|tool_call_argument_begin|>{ARGUMENTS}"
        "<|tool_call_end|>",
        opening="<|tool_calls_section_begin|>",
        closing="<|tool_calls_section_end|>",
        mark="<|tool_calls_section_begin|>",
        writes=True,
        id=re.compile(r"\S+:\d+"),
        serves="kimi_k2",
    ),
    ToolFormat(
        name="minimax",
        shape='<minimax:tool_call><invoke name="NAME"><parameter name="KEY">VALUE</parameter>'
        "</invoke></minimax:tool_call>",
        section=between("<minimax:tool_call>", "</minimax:tool_call>"),
        read=named_calls(INVOKE.format(""), tagged(MINIMAX_PARAMETER)),
        call=f'<invoke name="{NAME}">\n{ARGUMENTS}</invoke>\n',
        opening="<minimax:tool_call>\n",
        closing="</minimax:tool_call>",
        pairs=Pairs(text=f'<parameter name="{KEY}">{VALUE}</parameter>\n'),
        serves="minimax_m2",
    ),
    ToolFormat(
        name="smollm_python",
        shape="<code>NAME(KEY=VALUE)</code>",
        section=between("<code>", "</code>"),
        read=python_calls,
        opening="<code>",
        between="\n",
        closing="</code>",
        **PYTHON,
        writes=True,
    ),
    ToolFormat(
        name="lfm",
        shape="<|tool_call_start|>[NAME(KEY=VALUE)]<|tool_call_end|>",
        section=between(r"<\|tool_call_start\|>", r"<\|tool_call_end\|>"),
        read=python_calls,
        opening="<|tool_call_start|>[",
        between=", ",
        closing="]<|tool_call_end|>",
        **PYTHON,
        mark="<|tool_list_start|>",
        writes=True,
    ),
    ToolFormat(
        name="nemotron",
        shape=f"<TOOLCALL>[{OBJECT}]</TOOLCALL>",
        section=between("<TOOLCALL>", "</TOOLCALL>"),
        read=json_calls(),
        opening="<TOOLCALL>[",
        **OBJECTS,
        closing="]</TOOLCALL>",
        mark="<TOOLCALL>",
        writes=True,
    ),
    ToolFormat(
        name="json_list",
        shape=f"<tool_calls>[{OBJECT}]</tool_calls>",
        section=between("<tool_calls>", "</tool_calls>"),
        read=json_calls(),
        opening="<tool_calls>[",
        **OBJECTS,
        closing="]</tool_calls>",
        writes=True,
    ),
    ToolFormat(
        name="apertus",
        shape="<|tools_prefix|>[{<name>: <object>}]<|tools_suffix|>",
        section=between(r"<\|tools_prefix\|>", r"<\|tools_suffix\|>"),
        read=json_names,
        call=f'{{"{NAME}": {ARGUMENTS}}}',
        opening="<|tools_prefix|>[",
        between=", ",
        closing="]<|tools_suffix|>",
    ),
    ToolFormat(
        name="cohere",
        shape='<|START_ACTION|>[{"tool_name": <name>, "parameters": <object>}]<|END_ACTION|>',
        section=between(r"<\|START_ACTION\|>", r"<\|END_ACTION\|>"),
        read=json_calls("tool_name", ("parameters",)),
        call=f'{{"tool_name": "{NAME}", "parameters": {ARGUMENTS}}}',
        opening="<|START_ACTION|>[",
        between=", ",
        closing="]<|END_ACTION|>",
    ),
)
BY_NAME = {f.name: f for f in FORMATS}
