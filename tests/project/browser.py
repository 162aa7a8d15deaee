"""Runs files as in a browser: no thread and no process can start, no file can be mapped.

    python tests/project/browser.py FILE.py NOTEBOOK.md ...

Processes and maps are refused by an audit hook, which nothing gets around; threads, and the processes of
multiprocessing, where Python starts them.  The errors are those of Pyodide, which imitates mmap; other systems without
it refuse.  The system claims to have four cores, so that whatever runs on threads does try to start some.  The last
line printed is a JSON object: how many threads, processes and maps were asked for.
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
"""A cell of a notebook: its options, its code."""


def refuse(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse maps and processes, as an audit hook."""
    if event in ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "os.exec", "os.spawn"):
        ASKED["processes"] += 1
        raise OSError(errno.ENOSYS, "this system does not support processes")
    if event == "mmap.__new__":
        ASKED["maps"] += 1
        raise OSError(errno.ENODEV, "this system does not map files")


def no_thread(*arguments: Any, **settings: Any) -> None:
    """Replace the function that starts a thread."""
    ASKED["threads"] += 1
    raise RuntimeError("can't start new thread")


def no_process(*arguments: Any) -> None:
    """Replace what multiprocessing calls without an audit event."""
    refuse("os.fork", ())


def cells(notebook: Path) -> list[str]:
    """Return the code of a notebook, cell by cell, each at its own lines of the file."""
    text = notebook.read_text(encoding="utf-8")
    return ["\n" * text.count("\n", 0, found.start(2)) + found[2] for found in CELL.finditer(text)]


def close() -> None:
    """Behave like a browser until the process ends."""
    importlib.import_module("matplotlib.font_manager")  # on its first import it may look for fonts by processes

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
    """Run the files of the command line, each in a namespace of its own."""
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
