"""Run each attempt in course/attacks against the sandbox, in a separate process, and check whether it succeeded.

    python3 make.py python course/attack.py [names] [--kernel | --hook | --none]

An attempt wins if it changes files or shared memory outside the sandbox, changes its parent's limits or scheduling,
signals the parent, or contacts a server.  In reading.py, an attempt also wins if it returns the secret or "TOKEN...".

`--kernel` enables only Landlock and seccomp. `--hook` enables only the audit hook, as on systems without Landlock and
seccomp. `--none` disables the sandbox as a control. An attempt that fails without a sandbox tests nothing.
"""

from __future__ import annotations

import ast
import os
import resource
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy

import minintk
from minintk.grade import Submission, SubmissionError, worker

HERE = Path(__file__).resolve().parent / "attacks"
FILES = HERE / "reading.py", HERE / "acting.py"


def attempts() -> dict[str, Path]:
    """Return {name of an attempt: the file that defines it}."""
    functions = [(one, path) for path in FILES for one in ast.parse(path.read_text(encoding="utf-8")).body]
    return {one.name: path for one, path in functions if isinstance(one, ast.FunctionDef) and one.name[0] != "_"}


@contextmanager
def grounds() -> Iterator[tuple[dict[str, Any], list[str], str]]:
    """Yield (the files and ids given to an attempt, a list of events caused by the attempt, the secret).

    This process is the parent of the attempt's process.
    """
    heard: list[str] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: heard.append("a signal"))
    schedule = os.sched_getscheduler(0), os.sched_getaffinity(0)
    limits, priority = resource.getrlimit(resource.RLIMIT_NOFILE), os.getpriority(os.PRIO_PROCESS, 0)
    name, token = f"minintk-{secrets.token_hex(8)}", f"TOKEN {secrets.token_hex(16)}"
    with tempfile.TemporaryDirectory(prefix="minintk-attacks-") as made, socket.socket() as tcp:
        abstract = socket.socket(socket.AF_UNIX)
        folder = Path(os.path.realpath(made), "hw0_folder")
        folder.mkdir()
        for file, text in (("answers.py", f"TOKEN = '{token}'\n"), ("victim", "as it was")):
            (folder / file).write_text(text, encoding="utf-8")
        victim, state = folder / "victim", os.stat(folder / "victim")
        tcp.bind(("127.0.0.1", 0))
        abstract.bind(f"\0{name}")
        datagrams = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        datagrams.bind(f"\0{name}.d")
        datagrams.settimeout(0.05)
        servers = [tcp, abstract]
        for server in servers:
            server.listen()
            server.settimeout(0.05)
        yield {
            "secret": str(folder / "answers.py"), "folder": str(folder), "victim": str(victim), "parent": os.getpid(),
            "port": tcp.getsockname()[1], "name": name, "address": id(token),
            "library": str(Path(minintk.__file__).parents[1]),
        }, heard, token  # fmt: skip
        if not victim.exists() or victim.read_text(encoding="utf-8") != "as it was":
            heard.append("the victim is changed")
        elif (now := os.stat(victim)).st_mode != state.st_mode or now.st_mtime_ns != state.st_mtime_ns:
            heard.append("the victim's mode or time is changed")
        heard += [f"{new} is new" for new in sorted(set(os.listdir(folder)) - {"answers.py", "victim", "__pycache__"})]
        for shared in (Path("/dev/shm", name), Path("/dev/shm", f"sem.{name}")):
            if shared.exists():
                heard.append("shared memory is made")
                shared.unlink()
        with abstract, datagrams:
            for server in servers:
                with suppress(OSError), server.accept()[0] as connection:
                    heard.append(f"a server has heard {connection.recv(9)!r}")
            with suppress(OSError):
                heard.append(f"a socket has heard {datagrams.recv(9)!r}")
        if (os.sched_getscheduler(0), os.sched_getaffinity(0)) != schedule:
            heard.append("the parent runs otherwise")
            os.sched_setscheduler(0, schedule[0], os.sched_param(0))
            os.sched_setaffinity(0, schedule[1])
        if resource.getrlimit(resource.RLIMIT_NOFILE) != limits:
            heard.append("the parent has other limits")
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        if os.getpriority(os.PRIO_PROCESS, 0) != priority:
            heard.append("the parent is slowed down")
            with suppress(PermissionError):  # only root may undo it
                os.setpriority(os.PRIO_PROCESS, 0, priority)
    signal.signal(signal.SIGUSR1, before)


PARTS = {
    "whole": "",
    "kernel": "r, d = w.opened(['numpy']); assert w.landlock(r, d, os.getcwd()); assert w.seccomp()",
    "hook": "w.guard(*w.opened(['numpy']), os.getcwd())",
    "none": "",
}
"""{part of the sandbox: code that enables only this part}. The process of a submission enables all parts."""

PLAIN = """import os, sys; sys.path[:0] = {here!r}, {walls!r}; import {file} as f, wall as w; del sys.path[:2]; {wall}
print(f.{name}({place!r}))"""


def attempt(name: str, path: Path, part: str = "whole") -> str:
    """Run an attempt against this part of the sandbox. Return what it achieved, or "" if it failed."""
    with grounds() as (place, heard, token):
        if part == "whole":
            with Submission(path, seconds=5.0) as student:
                try:
                    got = str(student.call(name, place))
                except SubmissionError:
                    got = ""
        else:
            words = {"here": str(path.parent), "walls": str(Path(worker.__file__).parent), "file": path.stem}
            code = PLAIN.format(name=name, place=place, wall=PARTS[part], **words)
            with tempfile.TemporaryDirectory() as home:
                command = [sys.executable, "-S", "-P", "-B", "-c", code]
                env = {"PYTHONPATH": str(Path(numpy.__file__).parents[1])}
                got = subprocess.run(command, cwd=home, capture_output=True, text=True, timeout=60, env=env).stdout
        won = got.startswith("TOKEN") or token in got
    return ", ".join([*heard, *["the secret"] * (won and path.stem == "reading")])


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the attempts that won, and a summary line. Return 1 if any attempt won."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    part = next((word[2:] for word in words if word[2:] in PARTS), "whole")
    chosen = {name: path for name, path in attempts().items() if name in words or not {*words} - {f"--{part}"}}
    got = {name: attempt(name, path, part) for name, path in chosen.items()}
    lines = [f"WON    {chosen[name].stem}: {name} ({said})" for name, said in got.items() if said]
    print("\n".join([*lines, f"{len(got)} attempts against the wall ({part}): {len(lines)} have won"]))
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
