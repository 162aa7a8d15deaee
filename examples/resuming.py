"""Resume runs inside: killed training continues from its last snapshot, all its seeds together.

A run of `work` is the unit of a sweep: what is killed inside starts again.  Where one takes hours, `fit` keeps itself
in the folder of `unfinished`, and `collected` keeps the state of any run of snapshots with what was read off them.
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
from minintk.files.writing import digest
from minintk.training.checkpoints import load, save

PLACE = "MININTK_UNFINISHED"
"""Where running.py says in which folder; nothing is kept without it."""
SECONDS = 120.0
"""Between two snapshots on disk."""


@contextmanager
def unfinished(*arguments: Any) -> Iterator[Path | None]:
    """Give the folder of a run with these arguments, as checkpoint= of `fit`; removed once the run has ended."""
    if not (place := os.environ.get(PLACE)):
        yield None
        return
    folder = Path(place) / digest(repr(arguments))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield folder
    except FloatingPointError:  # diverged, which is an end too
        rmtree(folder)
        raise
    rmtree(folder)


def collected(
    run: Callable[[Any], Iterable[Any]], read: Callable[[Any], Any], theta0: mn.Array, *arguments: Any
) -> list[Any]:
    """read(snapshot) of all snapshots of run(resume), in order; arrays, numbers and text.

    run : `mn.train` or `mn.flow` with everything but resume=.  theta0 : whose library the state goes to.
    """
    with unfinished(*arguments) as folder:
        path, state, rows = folder and folder / "run.npz", None, []
        if path and path.exists():
            state, about = load(path, like=theta0)
            rows = about["rows"]
        saved, seen = perf_counter(), state is None
        for snap in run(state):
            if not seen:  # the snapshot that was saved comes again
                seen = True
                continue
            rows.append(read(snap))
            if path and perf_counter() - saved >= SECONDS:
                save(path, snap.state, {"rows": rows})
                saved = perf_counter()
        return rows
