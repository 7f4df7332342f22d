"""`agent.sandbox`: what a program may see and touch of the machine that it runs on.

In a sandbox, a program sees the system and its own installation (or its image), the project folder,
and nothing else of the disk; all of it read-only but for its episode's folder, which holds its
home, its /tmp and, with `agent.workdir: fresh`, the folder in which it starts. A folder that
`agent.workdir` names is read-only, too. It has processes of its own only. It shares the machine's
network: it reaches the gateway there, and whatever else the machine reaches.
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
CHECK_TIMEOUT = 60.0  # seconds for a tool to say whether it works


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The start of a program."""

    words: list[str]
    environment: dict[str, str]
    folder: Path  # in which `words` are run
    last: list[str] = field(default_factory=list)  # a command that ends what is left of it


class Sandbox(Protocol):
    """A kind of wall around a program; none is one too."""

    def check(self, command: list[str], shared: Path) -> None:
        """Raise PreflightError if the command cannot be started in it on this machine.

        `shared` is the folder in which it starts, unless that is its own.
        """
        ...

    def start(self, command: list[str], place: AgentFolder, given: dict[str, str]) -> Start:
        """Say how to start the command at a place.

        `given` are the variables that are meant for the program.
        """
        ...


class NoSandbox:
    """Implements Sandbox: the program can do what its user can."""

    def check(self, command: list[str], shared: Path) -> None:
        _find(command[0])

    def start(self, command: list[str], place: AgentFolder, given: dict[str, str]) -> Start:
        environment = _own(*KEPT)
        if place.home:
            environment |= {"HOME": str(place.home), "TMPDIR": str(place.folder / "tmp")}
        return Start(words=command, environment=environment | given, folder=place.start)


class Bwrap:
    """Implements Sandbox by bubblewrap: namespaces of the kernel, no service."""

    def check(self, command: list[str], shared: Path) -> None:
        """See Sandbox. Looks for the program from within."""
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
    """Implements Sandbox by a container of an image, which must be on the machine already."""

    image: str

    def check(self, command: list[str], shared: Path) -> None:
        """See Sandbox. Whether the image has the program shows when it is started."""
        _refuse_home(shared)
        words = ["docker", "image", "inspect", "--format", "{{.Id}}", self.image]
        what = f"there is no image {self.image}"
        todo = f"start docker, or get the image: docker pull {self.image}"
        _ask("docker", words, instead=what, todo=todo)

    def start(self, command: list[str], place: AgentFolder, given: dict[str, str]) -> Start:
        project, folder, name = Path.cwd(), place.folder, place.folder.name
        words = ["docker", "run", "--rm", "--name", name, "--pull", "never", "--init"]
        words += ["--interactive"]  # one that is kept is told of its episodes there
        words += ["--network", "host", "--log-driver", "none"]  # else dockerd keeps all it prints
        words += ["--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
        words += ["--user", f"{os.getuid()}:{os.getgid()}", "--workdir", str(place.start)]
        words += _mount(project, project, "readonly")
        for file in _secrets():
            words += _mount(Path(os.devnull), file, "readonly")
        words += [] if _is_seen(place) else _mount(place.start, place.start, "readonly")
        words += [*_mount(folder / "tmp", Path("/tmp")), *_mount(folder, folder)]
        words += ["--env", f"HOME={_home(place)}"]
        for variable in given:  # their values are not for the list of processes
            words += ["--env", variable]
        words += ["--entrypoint", command[0], self.image, *command[1:]]
        client = _own("PATH", "HOME", *(name for name in os.environ if name.startswith("DOCKER_")))
        last = ["docker", "rm", "--force", name]
        return Start(words=words, environment=client | given, folder=project, last=last)


def _walls(program: str, tmp: list[str]) -> list[str]:
    """Return bwrap's options in their order: what is below /tmp is laid over `tmp`."""
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
    """Raise PreflightError if a program could read the home folder: that is no sandbox."""
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
    """Raise PreflightError with what the tool says where these words fail."""
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
    """The folders of a program, and of all that it is a link to, beside the system and the project.

    Of .../bin/NAME it is all that is beside bin, as of an interpreter with its libraries, but
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
    """Return the files of the project in which art itself looks for keys."""
    return [file for file in [Path.cwd() / ".env"] if file.exists()]


def _is_seen(place: AgentFolder) -> bool:
    """Return whether the folder in which a program starts is in the project or in its own."""
    return any(place.start.is_relative_to(folder) for folder in (Path.cwd(), place.folder))


def _home(place: AgentFolder) -> str:
    return str(place.home or place.folder)


def _twice(option: str, path: Path) -> list[str]:
    return [option, str(path), str(path)]


def _mount(source: Path, target: Path, *more: str) -> list[str]:
    return ["--mount", ",".join(("type=bind", f"source={source}", f"target={target}", *more))]
