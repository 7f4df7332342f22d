"""An API is sent names that it takes; what it calls has the tools' own names."""

from art_cli.chat.tool_formats.names import ToolNames
from art_cli.llms.base import NativeCall, Reply


def test_an_api_is_sent_aliases_and_calls_the_tools_by_their_names() -> None:
    names = ToolNames([{"type": "function", "function": {"name": "list.files"}}])
    [shown] = names.shown()
    empty = {"type": "object", "properties": {}}
    assert shown["function"] == {"name": "list_files", "parameters": empty}
    message = {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "list.files"}}]}
    sent = names.sent(message)
    assert sent["tool_calls"][0]["function"]["name"] == "list_files"
    call = NativeCall(id="a", name="list_files", arguments="{}")
    reply = Reply(text="", calls=(call,), message=sent).named(names)
    assert reply.calls[0].name == "list.files" and reply.message == message
