"""Build the sandbox of the student's process before it reads the submission: limits on files, calls and resources.

On Linux with Landlock and seccomp, the kernel enforces the sandbox, and the process cannot undo it.  Landlock lets it
read only Python, system libraries, allowed packages and a few devices, and write only to its folder.  seccomp blocks
system calls that reach other processes, the network or settings.  https://docs.kernel.org/userspace-api/landlock.html

On every system, a Python audit hook applies similar rules.  CPU time is limited except on Windows, and memory except
on Windows and macOS.  The hook explains what is forbidden, but does not stop native code that reads and writes memory.

This file runs inside the student's process, so it imports only the standard library.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import subprocess  # noqa: F401 (what SciPy imports later is here before the hook)
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

EXECUTE, WRITE, READ_FILE, READ_DIR, REFER, TRUNCATE, IOCTL = 1, 2, 4, 8, 1 << 13, 1 << 14, 1 << 15
MAKE, PLAIN = sum(1 << k for k in range(4, 13)), 1 << 5 | 1 << 8
"""Landlock's rights to remove and make files and folders of every kind, and to remove and make only plain files."""

DEVICES = "/dev/null", "/dev/zero", "/dev/urandom", "/proc/cpuinfo", "/sys/devices/system/cpu", "/etc/ld.so.cache"
LIBRARIES = "/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib"


def opened(packages: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return (paths to read recursively, folders to list) that imports of these packages require."""
    homes = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib")]
    inside = [str(p) for home in {*homes, *LIBRARIES} for p in Path(home).glob("*")]
    skipped = ("site-packages", "dist-packages", "python")  # folders that contain other packages too
    found = [p for p in inside if not os.path.basename(p).startswith(skipped)]
    for place in sys.path:
        found += [os.path.join(place, name + end) for name in packages for end in ("", ".py", ".libs")]
    return [*DEVICES, *found], [*homes, *filter(os.path.isdir, sys.path)]


def landlock(read: Iterable[str], listed: Iterable[str], write: str) -> int:
    """Restrict file access to these paths, and return the version of Landlock, or 0 if it cannot be applied.

    Landlock 4 also forbids TCP connections; Landlock 6 also forbids signals and abstract sockets to other processes.
    """
    if sys.platform != "linux" or len(os.listdir("/proc/self/task")) > 1:  # Landlock applies only to the calling thread
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    version = max(0, int(libc.syscall(444, None, 0, 1)))
    rights = EXECUTE | WRITE | READ_FILE | READ_DIR | MAKE
    rights |= sum(right for since, right in ((2, REFER), (3, TRUNCATE), (5, IOCTL)) if version >= since)
    handled = struct.pack("QQQ", rights, 3 if version >= 4 else 0, 3 if version >= 6 else 0)
    size = 8 if version < 4 else 16 if version < 6 else 24
    rules = libc.syscall(444, handled, size, 0) if version else -1
    if rules < 0:
        return 0
    reading = [(p, READ_FILE | READ_DIR) for p in read] + [(p, READ_DIR) for p in listed]
    for path, access in [*reading, (write, rights & (WRITE | READ_FILE | READ_DIR | PLAIN | TRUNCATE))]:
        with suppress(OSError):  # missing paths need no rule
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
            allowed = access if os.path.isdir(path) else access & READ_FILE
            libc.syscall(445, rules, 1, struct.pack("=Qi", allowed, fd), 0)
            os.close(fd)
    libc.prctl(38, 1, 0, 0, 0)  # forbids new privileges
    done = libc.syscall(446, rules, 0) == 0
    os.close(rules)
    return version if done else 0


X86, ARM = 0xC000003E, 0xC00000B7  # seccomp's identifiers of x86-64 and 64-bit ARM
CLONE, PRLIMIT, CLONE3, SECCOMP = {X86: 56, ARM: 220}, {X86: 302, ARM: 261}, 435, {X86: 317, ARM: 277}
IOCTL_CALL, FLAGS, XFLAGS = {X86: 16, ARM: 29}, 0x40086602, 0x401C5820  # these make a file immutable
NEWER = (424, 425, 426, 427, *range(428, 434), 434, 438, 440, 442, 447, 448, 452, 463, 467)
"""System calls with equal numbers everywhere: pidfd_*, io_uring_*, mounts, process_m*, memfd_secret, fchmodat2 ..."""

CALLS = [tuple(map(int, pair.split(","))) for pair in """
    101,117 310,270 311,271 312,272 256,238 279,239 62,129 200,130 234,131 129,138 297,240 57,0 58,0 59,221 322,281
    272,97 308,268 165,40 166,39 155,41 161,51 303,264 304,265 41,198 53,199 29,194 30,196 31,195 68,186 64,190
    240,180 248,217 249,218 250,219 90,0 91,52 268,53 92,0 93,55 94,0 260,54 188,5 189,6 190,7 197,14 198,15 199,16
    132,0 235,0 261,0 280,88 203,122 144,119 142,118 314,274 141,140 251,30 321,280 298,241 323,282 164,170 227,112
    305,266 159,171 170,161 171,162 175,105 313,273 176,106 172,0 173,0 163,89 179,60 103,116 169,142 246,104 320,294
    167,224 168,225 135,92 160,164 253,0 294,26 254,27 300,262 301,263 319,279 133,0 259,33 83,0 258,34 274,100
""".split()]  # fmt: skip  # noqa: SIM905 (a table)
"""System calls on (x86-64, 64-bit ARM), 0 if there is none: ptrace and memory of others, signals, new processes,
namespaces and mounts, sockets, shared memory, queues and keys, owners, modes and times of files, priorities of others,
clocks, modules and other settings of the machine, limits, file notifications, files in memory, devices and folders."""


def seccomp() -> bool:
    """Block the system calls in CALLS and NEWER, new processes and limits; return True if the filter is installed.

    The filter is a program for the kernel's Berkeley packet filter, which can load, compare, skip and return.
    """
    kind = {"x86_64": X86, "aarch64": ARM}.get(platform.machine())
    if sys.platform != "linux" or kind is None or sys.maxsize < 2**32:
        return False
    load, equal, above, bits, leave = 0x20, 0x15, 0x35, 0x45, 0x06
    refuse, allow = (leave, 0, 0, 0x00050000 | errno.EPERM), (leave, 0, 0, 0x7FFF0000)
    number, first, second, low, high = ((load, 0, 0, at) for at in (0, 16, 24, 32, 36))  # the call and its arguments
    program = [(load, 0, 0, 4), (equal, 1, 0, kind), (leave, 0, 0, 0x80000000), number, (above, 0, 1, 1 << 30), refuse]
    program += [(equal, 0, 1, CLONE3), (leave, 0, 0, 0x00050000 | errno.ENOSYS)]  # glibc then uses clone
    program += [(equal, 0, 4, CLONE[kind]), first, (bits, 0, 1, 0x10000), allow, refuse]  # allows only threads
    program += [(equal, 0, 8, PRLIMIT[kind]), first, (equal, 0, 5, 0), low, (equal, 0, 3, 0), high, (equal, 0, 1, 0)]
    program += [allow, refuse]  # the process can read its own limits but not set new ones, even as root
    program += [(equal, 0, 5, IOCTL_CALL[kind]), second, (equal, 1, 0, FLAGS), (equal, 0, 1, XFLAGS), refuse, allow]
    for call in (*NEWER, *(pair[kind == ARM] for pair in CALLS)):
        program += [(equal, 0, 1, call), refuse] if call else []
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in [*program, allow]))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(38, 1, 0, 0, 0)
    filter_ = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(code))
    return bool(libc.syscall(SECCOMP[kind], 1, 1, filter_) == 0)  # 1, 1: install a filter, for all threads


def limit(**most: int) -> None:
    """Limit memory (AS, bytes), CPU time (seconds), file sizes or the number of processes, where supported."""
    try:
        import resource
    except ImportError:
        return
    for name, bound in most.items():
        kind = getattr(resource, f"RLIMIT_{name}")
        _, hard = resource.getrlimit(kind)
        with suppress(ValueError):  # macOS has no limit on address space
            resource.setrlimit(kind, (min(bound, hard),) * 2 if hard != resource.RLIM_INFINITY else (bound, bound))


REFUSED = ("os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.kill", "os.killpg",
           "os.startfile", "os.symlink", "os.link", "os.chdir", "os.mkdir", "gc.get_objects", "gc.get_referrers",
           "sys.addaudithook", "cpython._PySys_ClearAuditHooks", "cpython.PyInterpreterState_New")  # fmt: skip
ROOMS = ("subprocess", "socket", "ctypes", "shutil", "ftplib", "urllib", "winreg", "mmap", "resource", "fcntl",
         "signal", "pty")  # fmt: skip
NATIVE = ("_xxsubinterpreters", "_interpreters", "_testcapi", "_testinternalcapi", "_ctypes_test")
LISTED = ("os.listdir", "os.scandir")
CHANGED = ("os.rename", "os.remove", "os.rmdir", "os.truncate", "os.chmod", "os.chown", "os.utime")


def finder(packages: Sequence[str]) -> Any:
    """Return an import hook that refuses, with a reason, modules outside the standard library and these packages."""
    known = frozenset(sys.stdlib_module_names) | {*packages}
    says = f"may not be imported in this assignment: the standard library and {', '.join(packages)} may"
    own = "the grader hands over no variant: write what your handout asks for into your functions"

    class Finder:
        @staticmethod
        def find_spec(name: str, path: Any = None, target: Any = None) -> None:
            if name.partition(".")[0] not in known:
                raise ModuleNotFoundError(own if name == "variant" else f"{name} {says}", name=name)

    return Finder


def guard(read: Iterable[str], listed: Iterable[str], home: str) -> None:
    """Install an audit hook that forbids new processes, sockets, and all paths except `home` and those from `opened`.

    Python cannot remove the hook.  It looks up no names when it runs, so replacing `builtins.int` does not affect it.
    """
    folders, names = tuple(f"{path}{os.sep}" for path in read), frozenset([*read, *listed, home])
    own, up, sep, kind_of, kinds = f"{home}{os.sep}", f"{os.sep}..", os.sep, type, frozenset((str, bytes))
    begins, last, head, swap, text, number = str.startswith, str.rpartition, str.partition, str.replace, str, int
    refused, rooms, native, lists, changes = map(frozenset, (REFUSED, ROOMS, NATIVE, LISTED, CHANGED))
    wrong, absent, casts = PermissionError, ImportError, ("ctypes.call_function", getattr(ctypes, "_cast_addr", 0))
    writes, windows = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC, os.name == "nt"

    def check(path: Any, change: bool) -> None:
        if kind_of(path) not in kinds:
            raise wrong("a path expects a string")
        plain = swap(text(path, "utf-8", "surrogateescape") if kind_of(path) is bytes else path, "/", sep)
        outside = begins(plain, sep) or (windows and ":" in plain)
        if up in sep + plain or (
            outside and not begins(plain, own) and (change or not (plain in names or begins(plain, folders)))
        ):
            raise wrong(f"{last(plain, sep)[2]} may not be {'written' if change else 'read'} by a submission")

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event == "import" and head(args[0], ".")[0] in native:
            raise absent(f"{args[0]} is not allowed in a submission")  # concurrent.futures of 3.14 can do without it
        if event == "open" and kind_of(args[0]) is not number:
            check(args[0], (args[2] & writes) != 0 or args[1] == "w")  # the second from readline, which has no flags
        elif event in lists and kind_of(args[0]) is not number:
            check(home if args[0] is None else args[0], change=False)
        elif event in changes:
            for path in args[: 1 + (event == "os.rename")]:
                check(path, change=True)
        elif event in refused or (head(event, ".")[0] in rooms and (event, *args[:1]) != casts):  # scipy.special casts
            raise wrong(f"{event} is not allowed in a submission")

    sys.addaudithook(hook)


def close_in(home: str, packages: Sequence[str], memory: int, seconds: int) -> str:
    """Build the sandbox, and return the parts that this system has, such as "Landlock 7, seccomp"."""
    read, listed = opened(packages)
    version = landlock(read, listed, home)
    limit(AS=memory, CPU=seconds, FSIZE=2**26, CORE=0)  # before seccomp blocks new limits
    if not (filtered := seccomp()):
        limit(NPROC=0)
    sys.meta_path.insert(0, finder(packages))
    guard(read, listed, home)
    return ", ".join([f"Landlock {version}"] * bool(version) + ["seccomp"] * filtered)
