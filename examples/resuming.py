"""Resume within runs: killed training continues from its last snapshot, with all its seeds.

A sweep resumes between runs of `work`: a killed run starts again.  For runs that take hours, `fit` saves its state in
the folder of `unfinished`.  `collected` saves the state of any sequence of snapshots, and the values read from them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from time import perf_counter
from typing import Any

import minintk as mn
from minintk.files.locks import Claim, remove_claims
from minintk.files.writing import digest
from minintk.training.checkpoints import load, save

PLACE = "MININTK_UNFINISHED"
"""The environment variable in which running.py passes the folder; without it nothing is saved."""
SECONDS = 120.0
"""Seconds between two snapshots on disk."""


@contextmanager
def unfinished(*arguments: Any) -> Iterator[Path | None]:
    """Give the folder of a run with these arguments, for checkpoint= of `fit`, and remove it once the run has ended.

    It waits for a worker that still computes this run after the process that started it was killed or gave up.
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
        except FloatingPointError:  # diverged, which ends a run too
            remove()
            raise
        remove()


def collected(
    run: Callable[[Any], Iterable[Any]], read: Callable[[Any], Any], theta0: mn.Array, *arguments: Any
) -> list[Any]:
    """Return read(snapshot) for all snapshots of run(resume), in order; arrays, numbers and text.

    run : `mn.train` or `mn.flow` with all arguments except resume=.  theta0 : an array of the library for the state.
    """
    with unfinished(*arguments) as folder:
        path, state, rows = folder and folder / "run.npz", None, []
        if path and path.exists():
            state, about = load(path, like=theta0)
            rows = about["rows"]
        saved, seen = perf_counter(), state is None
        for snap in run(state):
            if not seen:  # the saved snapshot is yielded again
                seen = True
                continue
            rows.append(read(snap))
            if path and perf_counter() - saved >= SECONDS:
                save(path, snap.state, {"rows": rows})
                saved = perf_counter()
        return rows
