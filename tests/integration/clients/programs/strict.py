"""The official packages parse, strictly, every answer and every event of every stream."""

import json
import os

from anthropic import Anthropic
from openai import OpenAI

with open(os.environ["ART_SCENARIO_FILE"]) as file:
    task = json.load(file)
system, request = (m["content"] for m in task["messages"])
functions = [t["function"] for t in task["tools"]]
messages = [{"role": "user", "content": request}]

openai = OpenAI(_strict_response_validation=True, max_retries=0)
chat = {"model": "gpt-5-mini", "messages": task["messages"], "tools": task["tools"]}
openai.chat.completions.create(**chat, logprobs=True, top_logprobs=2)
openai.chat.completions.create(**chat, n=2)
usage = {"include_usage": True}
chunks = list(openai.chat.completions.create(**chat, stream=True, stream_options=usage))
tools = [{"type": "function", "strict": False, **f} for f in functions]
asked = {"model": "gpt-5-mini", "instructions": system, "input": request, "tools": tools}
openai.responses.create(**asked)
events = list(openai.responses.create(**asked, stream=True))
openai.completions.create(model="gpt-5-mini", prompt=request, max_tokens=3)
names = [model.id for model in openai.models.list()]

anthropic = Anthropic(_strict_response_validation=True, max_retries=0)
tools = [
    {"name": f["name"], "description": f["description"], "input_schema": f["parameters"]}
    for f in functions
]
asked = {"model": "claude-sonnet-4-6", "system": system, "messages": messages, "tools": tools}
anthropic.messages.create(**asked, max_tokens=512)
parts = list(anthropic.messages.create(**asked, max_tokens=512, stream=True))
count = anthropic.messages.count_tokens(**asked).input_tokens
for name in ("chunks", "events", "parts", "names", "count"):
    value = globals()[name]
    print(name, value if isinstance(value, int) else len(value))
