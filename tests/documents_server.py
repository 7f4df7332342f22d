"""A real MCP server over a folder of documents, which has tools that delete and overwrite them.

    python tests/documents_server.py FOLDER           over stdin and stdout
    python tests/documents_server.py FOLDER PORT      over HTTP

What a tool changes is on the disk, so it is still changed when the server is started again.
"""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

NAMES = tuple(f"note{i}.txt" for i in range(5))
ABOUT = ("snow", "iron", "bread", "whales", "maps")  # what no name says


def write_documents(folder: Path) -> Path:
    """Write five documents, and return their folder."""
    folder.mkdir()
    for name, about in zip(NAMES, ABOUT, strict=True):
        (folder / name).write_text(f"All of {about}.")
    return folder


def documents(folder: Path) -> dict[str, str]:
    """Return what is in the folder, by name."""
    return {path.name: path.read_text() for path in sorted(folder.iterdir())}


def command(folder: Path) -> str:
    """Return the command that starts the server, as `env.args.command` takes it."""
    return f"{{python}} {__file__} {folder}"


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Yield the URL of the server while it runs."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    words = [sys.executable, __file__, str(folder), str(port)]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(words, stdout=quiet, stderr=quiet) as process:
        try:
            deadline = time.monotonic() + 100
            while True:
                with socket.socket() as s:
                    if s.connect_ex(("127.0.0.1", port)) == 0:
                        break
                assert process.poll() is None and time.monotonic() < deadline
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.kill()


def main(folder: Path, port: str | None = None) -> None:
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp_types import ToolAnnotations
    from pydantic import Field

    server = MCPServer("documents")
    reads = ToolAnnotations(read_only_hint=True)

    @server.tool(annotations=reads)
    def list_documents() -> list[str]:
        """List the names of the documents."""
        return sorted(path.name for path in folder.iterdir())

    @server.tool(annotations=reads)
    def read_document(name: Annotated[str, Field(examples=list(NAMES))]) -> str:
        """Return a document."""
        if name not in (path.name for path in folder.iterdir()):
            raise ToolError(f"there is no document {name!r}")
        return (folder / name).read_text()

    @server.tool(annotations=ToolAnnotations(destructive_hint=True))
    def delete_document(name: Annotated[str, Field(examples=list(NAMES))]) -> str:
        """Delete a document."""
        (folder / Path(name).name).unlink()
        return f"{name} is deleted"

    @server.tool()
    def write_document(name: Annotated[str, Field(examples=list(NAMES))], text: str = "x") -> str:
        """Write a document. It has no hint at all."""
        (folder / Path(name).name).write_text(text)
        return f"{name} is written"

    @server.tool(annotations=ToolAnnotations(read_only_hint=True, destructive_hint=True))
    def empty_document(name: Annotated[str, Field(examples=list(NAMES))]) -> str:
        """Empty a document. Its hints contradict each other."""
        (folder / Path(name).name).write_text("")
        return f"{name} is empty"

    if port:
        server.run("streamable-http", port=int(port))
    else:
        server.run()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
