"""Resume killed training runs of one or several seeds from the last snapshot.

A sweep records only complete runs of `work`, so a killed run would restart from the beginning.  For runs that take
hours, `fit` therefore saves its state in the folder that `unfinished` yields.  `collected` saves the latest snapshot of
a run and the values computed from all snapshots so far.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from inspect import getsource
from pathlib import Path
from shutil import rmtree
from textwrap import dedent
from time import perf_counter
from typing import Any

import minintk as mn
from minintk.files.locks import Claim, remove_claims
from minintk.files.writing import digest, write_bytes
from minintk.training.checkpoints import load, save

PLACE = "MININTK_UNFINISHED"
"""The environment variable in which running.py passes the folder of unfinished runs. If unset, nothing is saved."""
SECONDS = 120.0
"""The minimum number of seconds between two snapshots on disk."""


def same_work(work: Callable[..., Any], record: Path) -> None:
    """Record a digest of `work`. Raise SystemExit if the recorded runs were made by a different `work`.

    The digest ignores comments, docstrings and the code of functions that `work` calls.
    """
    code: Any = ast.parse(dedent(getsource(work))).body[0]
    code.body = [n for n in code.body if not (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))]
    now = digest(ast.unparse(code))
    if record.exists() and record.read_text("utf-8") != now:
        raise SystemExit(f"{record}: the runs beside it were made by another `{work.__name__}`: use another --out")
    record.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(record, now.encode())


@contextmanager
def unfinished(*arguments: Any) -> Iterator[Path | None]:
    """Yield a folder for a run with these arguments (None if PLACE is unset), and remove it once the run has ended.

    Pass the folder to `fit` as checkpoint=. If the process that started this run has ended, but one of its workers
    still computes the run, wait for that worker.
    """
    if not (place := os.environ.get(PLACE)):
        yield None
        return
    folder = Path(place) / digest(repr(arguments))
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = folder.with_suffix(".lock")

    def remove() -> None:
        rmtree(folder)
        remove_claims([lock])

    with Claim(lock, wait=True):
        folder.mkdir(exist_ok=True)
        try:
            yield folder
        except FloatingPointError:  # the run has diverged, so it has ended
            remove()
            raise
        remove()


def collected(
    run: Callable[[Any], Iterable[Any]], read: Callable[[Any], Any], theta0: mn.Array, *arguments: Any
) -> list[Any]:
    """Return read(snapshot) for all snapshots of run(resume), in order.

    run : a function of the argument resume, such as `mn.train` or `mn.flow` with all other arguments given.
    read : a function of a snapshot that returns an array, a JSON value, or a tuple of these.
    theta0 : an array (NumPy or CuPy) that determines the library in which the state is restored.
    """
    with unfinished(*arguments) as folder:
        path, state, rows = folder and folder / "run.npz", None, []
        if path and path.exists():
            state, about = load(path, like=theta0)
            rows = about["rows"]
        saved, seen = perf_counter(), state is None
        for snap in run(state):
            if not seen:  # run() yields the saved snapshot again
                seen = True
                continue
            rows.append(read(snap))
            if path and perf_counter() - saved >= SECONDS:
                save(path, snap.state, {"rows": rows})
                saved = perf_counter()
        return rows
