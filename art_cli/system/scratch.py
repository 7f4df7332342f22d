"""Temporary folders that do not outlive this process, in whatever way it ends.

For each parent folder, a shell waits for the end of this process and then removes the folders that
are left. It checks again after a while, because a program being killed may still write.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import subprocess
import tempfile
from functools import cache
from pathlib import Path

REMOVE_TIMEOUT = 60.0  # seconds to remove a folder; after that the shell removes it at the end
# rm runs as a separate process, so that many or deeply nested files block nothing here.
REMOVE = """
remove() {
    rm -rf "$1" 2>&- || { chmod -R u+rwx "$1" 2>&-; rm -rf "$1" 2>&1 | tail -n 1; }
}
"""
KEEP = f"""
{REMOVE}
trap '' HUP INT TERM
exec 3<&0
{{
    cat <&3 > /dev/null
    for seconds in 0 1 3 10; do
        sleep $seconds
        found=
        for folder in "$1"/art-*-"$2"-*; do
            [ -d "$folder" ] && found=yes && remove "$folder"
        done
        [ "$found" ] || exit 0
    done
}} &
"""


def make_scratch(kind: str) -> Path:
    """Return a new folder. A separate process removes it if this one ends before `remove`."""
    folder = os.path.abspath(tempfile.gettempdir())
    return Path(tempfile.mkdtemp(prefix=f"art-{kind}-{_kept_in(folder)}-", dir=folder))


@cache
def _kept_in(folder: str) -> str:
    """Start the shell that removes this process's folders. Return the prefix of their names."""
    name, null = secrets.token_hex(4), subprocess.DEVNULL
    watched, _ = os.pipe()  # the other end stays open while this process lives
    subprocess.run(
        ["sh", "-c", KEEP, "sh", folder, name],
        stdin=watched,
        stdout=null,
        stderr=null,
        cwd="/",
        start_new_session=True,  # Ctrl-C goes to the run
        check=True,
    )
    os.close(watched)
    return name


async def remove(folder: Path) -> str:
    """Remove a folder, including parts that its owner may not write to.

    Return the reason why it still exists, or "" if it is gone.
    """
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", f'{REMOVE}remove "$1"', "sh", str(folder)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(REMOVE_TIMEOUT):
            said, _ = await process.communicate()
    except TimeoutError:
        return f"it could not be removed within {REMOVE_TIMEOUT:g} s"
    return said.decode(errors="replace").strip() if os.path.lexists(folder) else ""
