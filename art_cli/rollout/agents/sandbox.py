"""`agent.sandbox`: limits on what a program can see and change on its machine.

In a sandbox, a program sees the system, its own installation (or its image) and the project folder,
and no other files. All of it is read-only except its episode's folder, which holds its home, its
/tmp and, with `agent.workdir: fresh`, its working directory. A folder named by `agent.workdir` is
read-only, too. The program sees only its own processes. It shares the machine's network, so it
reaches the gateway and everything else that the machine reaches.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from art_cli.errors import PreflightError
from art_cli.rollout.agents.workdir import AgentFolder

KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "SYSTEMROOT")  # of our own environment
SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/opt", "/nix", "/gnu"),
    "/run/systemd/resolve",  # where /etc/resolv.conf may lead
)
CHECK_TIMEOUT = 60.0  # seconds to test a sandbox tool


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The command line, environment and folder of a program."""

    words: list[str]
    environment: dict[str, str]
    folder: Path  # working directory of `words`
    last: list[str] = field(default_factory=list)  # a command that removes what the program leaves


class Sandbox(Protocol):
    """A way to isolate a program, or not to."""

    def check(self, command: list[str], shared: Path) -> None:
        """Raise PreflightError if the command cannot be started on this machine.

        `shared` is the working directory, unless each episode has its own.
        """
        ...

    def start(self, command: list[str], place: AgentFolder, given: dict[str, str]) -> Start:
        """Return how to start the command in a folder.

        `given` are the environment variables for the program.
        """
        ...


class NoSandbox:
    """Implements Sandbox: the program has all rights of its user."""

    def check(self, command: list[str], shared: Path) -> None:
        _find(command[0])

    def start(self, command: list[str], place: AgentFolder, given: dict[str, str]) -> Start:
        environment = _own(*KEPT)
        if place.home:
            environment |= {"HOME": str(place.home), "TMPDIR": str(place.folder / "tmp")}
        return Start(words=command, environment=environment | given, folder=place.start)


class Bwrap:
    """Implements Sandbox with bubblewrap, which uses kernel namespaces and needs no service."""

    def check(self, command: list[str], shared: Path) -> None:
        """See Sandbox. Looks for the program inside the sandbox."""
        _refuse_home(shared)
        _find(command[0])
        look = ["sh", "-c", 'command -v -- "$0"', command[0]]
        walls = _walls(command[0], ["--tmpfs", "/tmp"])
        words = ["bwrap", *walls, "--chdir", str(Path.cwd()), "--", *look]
        what = f"{command[0]} cannot be seen from within the sandbox"
        _ask("bwrap", words, instead=what, todo="mend or install bubblewrap, or remove the key")

    def start(self, command: list[str], place: AgentFolder, given: dict[str, str]) -> Start:
        walls = _walls(command[0], ["--bind", str(place.folder / "tmp"), "/tmp"])
        walls += [] if _is_seen(place) else _twice("--ro-bind", place.start)
        walls += [*_twice("--bind", place.folder), "--chdir", str(place.start)]
        words = ["bwrap", *walls, "--remount-ro", "/", "--", *command]
        environment = _own("PATH", "LANG", "LC_ALL") | {"HOME": _home(place)} | given
        return Start(words=words, environment=environment, folder=Path.cwd())


@dataclass(frozen=True, slots=True)
class Docker:
    """Implements Sandbox with a container. Its image must be on the machine already."""

    image: str

    def check(self, command: list[str], shared: Path) -> None:
        """See Sandbox. Does not check that the image contains the program."""
        _refuse_home(shared)
        words = ["docker", "image", "inspect", "--format", "{{.Id}}", self.image]
        what = f"there is no image {self.image}"
        todo = f"start docker, or get the image: docker pull {self.image}"
        _ask("docker", words, instead=what, todo=todo)

    def start(self, command: list[str], place: AgentFolder, given: dict[str, str]) -> Start:
        project, folder, name = Path.cwd(), place.folder, place.folder.name
        words = ["docker", "run", "--rm", "--name", name, "--pull", "never", "--init"]
        words += ["--interactive"]  # a persistent program reads its episodes from stdin
        words += ["--network", "host", "--log-driver", "none"]  # else dockerd stores the output
        words += ["--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
        words += ["--user", f"{os.getuid()}:{os.getgid()}", "--workdir", str(place.start)]
        words += _mount(project, project, "readonly")
        for file in _secrets():
            words += _mount(Path(os.devnull), file, "readonly")
        words += [] if _is_seen(place) else _mount(place.start, place.start, "readonly")
        words += [*_mount(folder / "tmp", Path("/tmp")), *_mount(folder, folder)]
        words += ["--env", f"HOME={_home(place)}"]
        for variable in given:  # values would be visible in the process list
            words += ["--env", variable]
        words += ["--entrypoint", command[0], self.image, *command[1:]]
        client = _own("PATH", "HOME", *(name for name in os.environ if name.startswith("DOCKER_")))
        last = ["docker", "rm", "--force", name]
        return Start(words=words, environment=client | given, folder=project, last=last)


def _walls(program: str, tmp: list[str]) -> list[str]:
    """Return bwrap's options in order: later mounts, some below /tmp, cover `tmp`."""
    walls = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--cap-drop", "ALL"]
    walls += ["--die-with-parent", "--proc", "/proc", "--dev", "/dev", *tmp]
    for folder in (*map(Path, SYSTEM), *_installation(program)):
        walls += _twice("--ro-bind-try", folder)
    walls += _twice("--ro-bind", Path.cwd())
    return walls + [word for file in _secrets() for word in ("--dev-bind", os.devnull, str(file))]


def _own(*names: str) -> dict[str, str]:
    return {name: os.environ[name] for name in names if name in os.environ}


def _find(program: str) -> Path:
    if found := shutil.which(program):
        return Path(found).absolute()
    raise PreflightError(
        f"agent: there is no program {program!r}, neither in PATH nor as a file below {Path.cwd()}"
    )


def _refuse_home(shared: Path) -> None:
    """Raise PreflightError if a program could read the home folder."""
    if Path.home().is_relative_to(Path.cwd()):
        raise PreflightError(
            f"agent.sandbox: the program may read the folder that art is started in, and "
            f"{Path.cwd()} holds your home folder; start it in a folder of the project's own"
        )
    if Path.home().is_relative_to(shared.resolve()):
        raise PreflightError(
            f"agent.sandbox: the program may read the folder of agent.workdir, and {shared} holds "
            "your home folder; name a smaller one"
        )


def _ask(tool: str, words: list[str], *, instead: str, todo: str) -> None:
    """Run a sandbox tool. Raises PreflightError with its output if it fails."""
    try:
        asked = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=CHECK_TIMEOUT,
            check=False,
        )
    except FileNotFoundError:
        raise PreflightError(f"agent.sandbox: there is no program {tool!r}; {todo}") from None
    except subprocess.TimeoutExpired:
        said, failed = f"no answer within {CHECK_TIMEOUT:g} s", True
    else:
        said, failed = asked.stderr.decode(errors="replace").strip(), asked.returncode != 0
    if failed:
        raise PreflightError(
            f"agent.sandbox={tool} does not work on this machine: {said or instead}\n{todo}"
        )


def _installation(program: str) -> Iterator[Path]:
    """Yield the folders of a program and its link targets, outside the system and the project.

    For .../bin/NAME this is the parent of bin, as for an interpreter with its libraries, but
    never a home folder.
    """
    path = _find(program)
    while True:
        for at in (path, path.parent.resolve() / path.name):
            home, folder = Path.home(), at.parent
            if folder.name == "bin" and folder.parent not in (home, home / ".local"):
                folder = folder.parent
            known = (*map(Path, SYSTEM), Path.cwd())
            if not any(folder.is_relative_to(other) for other in known):
                yield at if home.is_relative_to(folder) else folder
        if not path.is_symlink():
            return
        path = Path(os.path.normpath(path.parent / path.readlink()))


def _secrets() -> list[Path]:
    """Return the files of the project from which art reads keys."""
    return [file for file in [Path.cwd() / ".env"] if file.exists()]


def _is_seen(place: AgentFolder) -> bool:
    """Return whether the working directory is within the project or the episode's folder."""
    return any(place.start.is_relative_to(folder) for folder in (Path.cwd(), place.folder))


def _home(place: AgentFolder) -> str:
    return str(place.home or place.folder)


def _twice(option: str, path: Path) -> list[str]:
    return [option, str(path), str(path)]


def _mount(source: Path, target: Path, *more: str) -> list[str]:
    return ["--mount", ",".join(("type=bind", f"source={source}", f"target={target}", *more))]
