"""Takes from a process, for good, what a program that a model wrote must not have.

Linux alone can: Landlock (6.2 or newer, where it holds truncation too) names what may be read, and
nothing may be written; a seccomp filter takes away other processes, the network and what Landlock
does not see; limits hold time, memory and files. No privilege is needed, so that it works in a
container, and root is held like anybody else. Used in the runner's process, which has the standard
library alone.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import signal
import struct
import sys
from collections.abc import Iterable

MIB = 1 << 20
CREATE_RULESET, ADD_RULE, RESTRICT_SELF, CAPSET = 444, 445, 446, {"x86_64": 126, "aarch64": 91}
EXECUTE, WRITE, READ, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
RIGHTS = {3: (1 << 15) - 1, 5: (1 << 16) - 1}  # by version
LEAST = 3  # the version that holds truncation
TCP, SCOPES = 0b11, 0b11  # bind and connect; abstract sockets and signals
SET_PARENT_DEATH_SIGNAL, SET_NO_NEW_PRIVS, SET_SECCOMP, FILTER_MODE = 1, 38, 22, 2

# Numbers on x86_64 and aarch64; None where there is no such call.
DENIED: dict[str, tuple[int | None, int | None]] = {
    # a program is one process, which reaches no other
    "fork": (57, None),
    "vfork": (58, None),
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "pidfd_getfd": (438, 438),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "kcmp": (312, 272),
    "setsid": (112, 157),
    "setpgid": (109, 154),
    "setpriority": (141, 140),
    "sched_setaffinity": (203, 122),
    "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118),
    "sched_setattr": (314, 274),
    "ioprio_set": (251, 30),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    # no network, no memory shared with others or beyond the limits
    "socket": (41, 198),
    "socketpair": (53, 199),
    "bind": (49, 200),
    "connect": (42, 203),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    # what may be done to a file whose content Landlock keeps
    "truncate": (76, 45),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "setxattrat": (463, 463),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "removexattrat": (466, 466),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "open_by_handle_at": (304, 265),
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "fanotify_init": (300, 262),
    # parts of the kernel that no such program needs
    "unshare": (272, 97),
    "setns": (308, 268),
    "chroot": (161, 51),
    "pivot_root": (155, 41),
    "mount": (165, 40),
    "umount2": (166, 39),
    "fsopen": (430, 430),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "mount_setattr": (442, 442),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "personality": (135, 92),
}
CLONE, CLONE3, FCNTL, PRLIMIT = (56, 220), (435, 435), (72, 25), (302, 261)
PRCTL = (157, 167)
CLONE_THREAD = 0x10000
SET_OWNER = (8, 10, 15)  # F_SETOWN, F_SETSIG, F_SETOWN_EX: signals to others by way of a pipe
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
X32 = 0x40000000  # numbers from here are the same calls in another guise
LOAD, EQUAL, AT_LEAST, SET, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, KILL, REFUSE, UNKNOWN = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026  # EPERM, ENOSYS

_libc = ctypes.CDLL(None, use_errno=True)


class NoWallsError(Exception):
    """This machine cannot hold a program."""


def landlock_version() -> int:
    """Return which version of Landlock the kernel has. Raises NoWallsError where it has none."""
    if sys.platform != "linux" or platform.machine() not in MACHINES:
        raise NoWallsError(f"{platform.system()} on {platform.machine()}")
    version = _libc.syscall(CREATE_RULESET, None, 0, 1)
    if version < LEAST:
        raise NoWallsError(f"Landlock in version {LEAST}; the kernel has {max(0, version)}")
    return version


def make_ruleset(read: Iterable[str], run: Iterable[str], look: Iterable[str], version: int) -> int:
    """Return a descriptor of what may be done: read beneath, run, or list these paths; no more."""
    handled = RIGHTS[max(v for v in RIGHTS if v <= version)]
    attributes = struct.pack("QQQ", handled, TCP if version >= 4 else 0, SCOPES)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = _checked(_libc.syscall(CREATE_RULESET, attributes, size, 0), "landlock")
    rules = [(path, READ | READ_DIR | EXECUTE) for path in read]
    rules += [(path, READ | EXECUTE) for path in run] + [(path, READ_DIR) for path in look]
    for path, rights in [*rules, (os.devnull, READ | WRITE), ("/dev/urandom", READ)]:
        try:
            beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue  # not on this machine
        if not os.path.isdir(path):
            rights &= ~READ_DIR
        rule = struct.pack("=Qi", rights, beneath)
        _checked(_libc.syscall(ADD_RULE, ruleset, 1, rule, 0), f"landlock: {path}")
        os.close(beneath)
    return ruleset


def close_in(ruleset: int, *, cpu_seconds: int, memory: int, address_space: int | None) -> None:
    """Put this process, and all that it becomes, behind the walls. Nothing undoes it."""
    limits = {
        resource.RLIMIT_CPU: cpu_seconds,
        resource.RLIMIT_DATA: memory,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_NOFILE: 64,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
    }
    if address_space:
        limits[resource.RLIMIT_AS] = address_space
    for kind, most in limits.items():
        resource.setrlimit(kind, (most, most))
    _checked(_libc.prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0), "parent's death")
    _checked(_libc.prctl(SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    header, none = struct.pack("Ii", 0x20080522, 0), bytes(24)
    _checked(_libc.syscall(CAPSET[platform.machine()], header, none), "capset")
    _checked(_libc.syscall(RESTRICT_SELF, ruleset, 0), "landlock")
    program = _filter(*MACHINES[platform.machine()])
    code = ctypes.create_string_buffer(program, len(program))
    asked = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    _checked(_libc.prctl(SET_SECCOMP, FILTER_MODE, asked, 0, 0), "seccomp")


def _checked(result: int, what: str) -> int:
    if result < 0:
        raise NoWallsError(f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def _filter(column: int, architecture: int) -> bytes:
    """Return the seccomp program: what is not refused is allowed."""
    nr, args = 0, [16 + 8 * i for i in range(6)]  # where they stand in seccomp_data; low halves
    out = [
        _op(LOAD, 4),
        _op(EQUAL, architecture, 1, 0),
        _op(RETURN, KILL),
        _op(LOAD, nr),
        _op(AT_LEAST, X32, 0, 1),
        _op(RETURN, REFUSE),
    ]
    for numbers in DENIED.values():
        if (number := numbers[column]) is not None:
            out += [_op(EQUAL, number, 0, 1), _op(RETURN, REFUSE)]
    out += [_op(EQUAL, CLONE3[column], 0, 1), _op(RETURN, UNKNOWN)]  # libc then asks for clone
    out += [_op(EQUAL, CLONE[column], 0, 4), _op(LOAD, args[0])]
    out += [_op(SET, CLONE_THREAD, 1, 0), _op(RETURN, REFUSE), _op(RETURN, ALLOW)]
    out += [_op(EQUAL, PRLIMIT[column], 0, 4), _op(LOAD, args[0])]
    out += [_op(EQUAL, 0, 1, 0), _op(RETURN, REFUSE), _op(RETURN, ALLOW)]
    out += [_op(EQUAL, PRCTL[column], 0, 4), _op(LOAD, args[0])]  # it ends with its runner
    out += [_op(EQUAL, SET_PARENT_DEATH_SIGNAL, 0, 1), _op(RETURN, REFUSE), _op(RETURN, ALLOW)]
    out += [_op(EQUAL, FCNTL[column], 0, 2 + 2 * len(SET_OWNER)), _op(LOAD, args[1])]
    for command in SET_OWNER:
        out += [_op(EQUAL, command, 0, 1), _op(RETURN, REFUSE)]
    return b"".join([*out, _op(RETURN, ALLOW), _op(RETURN, ALLOW)])


def _op(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)
