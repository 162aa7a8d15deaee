"""Test each part of the isolation of a process. tests/course/test_attack.py attacks the isolation as a whole."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from minintk.grade import wall

linux = pytest.mark.skipif(sys.platform != "linux", reason="Landlock and seccomp are Linux's")

READ = "open({file!r}).read()"
REPLACED = "import builtins, io, os; builtins.int = str; builtins.bool = lambda x: False; os.open({file!r}, 0)"
NATIVE = "import os; fd = libc.open({file!r}.encode(), 0); os.read(fd, 9) if fd >= 0 else 1 / 0"
SPAWN = "import os; os.posix_spawn('/bin/true', ['true'], {{}})"
FORK = "1 / 0 if libc.fork() < 0 else None"
SOCKET = "import socket; socket.socket()"
THREAD = "import threading; threading.Thread(target=int).start()"
IMPORT = "import numpy, json"
OWN = "open('mine', 'w').write('x'); open('mine').read()"


def survives(up: str, does: str, file: Path, home: Path) -> bool:
    """True if a process isolated by the code `up` can still execute the code `does`."""
    known = "import ctypes, wall; libc = ctypes.CDLL(None); libc.open, libc.fork"
    code = f"{known}; home = {str(home)!r}; {up}\n{does.format(file=str(file))}"
    env = {"PYTHONPATH": f"{Path(wall.__file__).parent}:{Path(np.__file__).parents[1]}"}
    home.mkdir(exist_ok=True)
    command = [sys.executable, "-S", "-P", "-B", "-c", code]
    return subprocess.run(command, cwd=home, env=env, capture_output=True).returncode == 0


FILES = "assert wall.landlock(*wall.opened(['numpy']), home)"
CALLS = "assert wall.seccomp()"
HOOK = "wall.guard(*wall.opened(['numpy']), home)"
NATIVE_CALLS = {HOOK} if sys.version_info >= (3, 14) else set()
"""The hook stops native calls from Python 3.14 on, where every call by ctypes is announced to audit hooks."""


@linux
@pytest.mark.parametrize(
    ("does", "stopped_by"),
    [
        (READ, {FILES, HOOK}), (REPLACED, {FILES, HOOK}), (NATIVE, {FILES} | NATIVE_CALLS),
        (SPAWN, {FILES, CALLS, HOOK}), (FORK, {CALLS} | NATIVE_CALLS),
        (SOCKET, {CALLS, HOOK}), (THREAD, set()), (IMPORT, set()), (OWN, set()),
    ],
)  # fmt: skip
def test_each_part_stops_what_it_is_there_for(does: str, stopped_by: set[str], tmp_path: Path) -> None:
    (file := tmp_path / "secret").write_text("secret")
    assert survives("", does, file, tmp_path / "home")
    for part in (FILES, CALLS, HOOK):
        assert survives(part, does, file, tmp_path / "home") == (part not in stopped_by), part


@pytest.mark.parametrize(
    ("event", "error"),
    [
        ("'open', spare, 'r', 0", None),
        ("'open', spare, 'w', 0", "PermissionError"),
        ("'ctypes.call_function', ctypes._cast_addr, ()", None),
        ("'ctypes.call_function', ctypes._cast_addr + 1, ()", "PermissionError"),
        ("'import', '_interpreters', None, None, None, None", "ImportError"),
    ],
)
def test_events_of_python_3_14(event: str, error: str | None, tmp_path: Path) -> None:
    """Test audit events of readline, ctypes and concurrent.futures from 3.14 on.  Readline's have flags 0."""
    does = f"import sys; spare = wall.opened(['numpy'])[0][0] + '/spare'; sys.audit({event})"
    as_error = f"try: sys.audit({event})\nexcept {error} as e: assert type(e) is {error}\nelse: 1 / 0"
    does = does if error is None else does.rpartition("; ")[0] + "\n" + as_error
    assert survives(HOOK, does, tmp_path, tmp_path / "home")


@linux
def test_the_whole_says_what_is_up(tmp_path: Path) -> None:
    says = "assert wall.close_in(home, ['numpy'], 2**32, 60).startswith('Landlock ')"
    assert survives(says, IMPORT, tmp_path, tmp_path / "home")
    assert not survives(f"{says}; home = 0", "import minintk", tmp_path, tmp_path / "home")


def test_of_other_packages_nothing_may_be_read() -> None:
    read, listed = wall.opened(["numpy"])
    assert str(Path(np.__file__).parent) in read
    assert not [path for path in read if Path(path).name.startswith(("site-packages", "dist-packages", "python3"))]
    assert not [path for path in read if Path(path) in Path(pytest.__file__).parents]
    assert str(Path(np.__file__).parents[1]) in listed
