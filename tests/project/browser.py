"""Run files under the restrictions of a browser, where no thread or process can start and no file can be mapped.

    python tests/project/browser.py FILE.py NOTEBOOK.md ...

An audit hook, which cannot be removed, raises an error if a process is started or a file is mapped.  The functions
that start threads and the processes of multiprocessing raise errors too.  The errors are those of Pyodide, except that
Pyodide emulates mmap.  The system reports four cores, so that code that uses threads tries to start them.  The last
line printed is a JSON object with the numbers of threads, processes and maps that the files requested.
"""

import _thread
import errno
import importlib
import json
import os
import re
import runpy
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

ASKED: Counter[str] = Counter()

CELL = re.compile(r"^```\{code-cell\}.*\n((?::.*\n)*)((?s:.*?))^```$", re.M)
"""Matches a code cell of a notebook. Group 1 contains the options, and group 2 the code."""


def refuse(event: str, arguments: tuple[Any, ...]) -> None:
    """Count the request and raise OSError if an audit event reports a new process or a mapped file."""
    if event in ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "os.exec", "os.spawn"):
        ASKED["processes"] += 1
        raise OSError(errno.ENOSYS, "this system does not support processes")
    if event == "mmap.__new__":
        ASKED["maps"] += 1
        raise OSError(errno.ENODEV, "this system does not map files")


def no_thread(*arguments: Any, **settings: Any) -> None:
    """Count the request and raise RuntimeError, in place of the function that starts a thread."""
    ASKED["threads"] += 1
    raise RuntimeError("can't start new thread")


def no_process(*arguments: Any) -> None:
    """Count the request and raise OSError, in place of a function that would start a process without an audit event."""
    refuse("os.fork", ())


def cells(notebook: Path) -> list[str]:
    """Return the code of each cell of a notebook. Empty lines before each cell preserve line numbers."""
    text = notebook.read_text(encoding="utf-8")
    return ["\n" * text.count("\n", 0, found.start(2)) + found[2] for found in CELL.finditer(text)]


def close() -> None:
    """Impose the restrictions of a browser on this process until it ends."""
    importlib.import_module("matplotlib.font_manager")  # its first import may start processes to find fonts

    for name in ("numba", "cupy", "resource"):
        sys.modules[name] = None  # type: ignore[assignment]
    for module, names in (
        (threading, ("_start_new_thread", "_start_joinable_thread")),
        (_thread, ("start_new_thread", "start_joinable_thread")),
    ):
        for name in names:
            if hasattr(module, name):
                setattr(module, name, no_thread)
    if os.name == "posix":
        import _posixsubprocess

        _posixsubprocess.fork_exec = no_process  # type: ignore[assignment]
    os.sched_getaffinity = lambda process: {0, 1, 2, 3}
    sys.addaudithook(refuse)


def main() -> None:
    """Run the files named on the command line, each in its own namespace."""
    close()
    for path in map(Path, sys.argv[1:]):
        if path.suffix == ".md":
            defined: dict[str, Any] = {"__name__": "__main__"}
            for code in cells(path):
                exec(compile(code, str(path), "exec"), defined)
        else:
            runpy.run_path(str(path), run_name="__main__")
    print(json.dumps({kind: ASKED[kind] for kind in ("threads", "processes", "maps")}))


if __name__ == "__main__":
    main()
