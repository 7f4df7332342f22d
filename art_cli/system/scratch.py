"""Temporary folders that do not outlive this process, in whatever way it ends.

A shell waits for its end and then removes those that are left: one shell for each folder in which
they are made. It looks again after a while, since a program that is being killed may still write.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import subprocess
import tempfile
from functools import cache
from pathlib import Path

REMOVE_TIMEOUT = 60.0  # seconds to remove a folder, until it is left to the very end
# rm as a process of its own: many files, or many folders in each other, hold up nothing here.
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
    """Return a new folder. A process of its own removes it if this one ends before `remove`."""
    folder = os.path.abspath(tempfile.gettempdir())
    return Path(tempfile.mkdtemp(prefix=f"art-{kind}-{_kept_in(folder)}-", dir=folder))


@cache
def _kept_in(folder: str) -> str:
    """Start what removes folders of this process; return what their names have in common."""
    name, null = secrets.token_hex(4), subprocess.DEVNULL
    watched, _ = os.pipe()  # the other end is open for as long as this process lives
    subprocess.run(
        ["sh", "-c", KEEP, "sh", folder, name],
        stdin=watched,
        stdout=null,
        stderr=null,
        cwd="/",
        start_new_session=True,  # Ctrl-C is for the run
        check=True,
    )
    os.close(watched)
    return name


async def remove(folder: Path) -> str:
    """Remove a folder, with what its owner may not write to, too.

    Return why it is still there; "" if it is gone.
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
