"""Show the progress of long work on stderr: a bar on a terminal, otherwise a line at most every ten seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter


@contextmanager
def progress_of(what: str, total: float, shown: bool) -> Iterator[Callable[[float], None]]:
    """Yield a function advance(amount) that records progress.  If not `shown`, only warn if an hour or more remains.

    >>> with progress_of("counting", 3, shown=False) as advance:
    ...     for _ in range(3):
    ...         advance(1)
    """
    if not shown:
        tell, done = forewarned(what), 0.0

        def silent(amount: float) -> None:
            nonlocal done
            done += amount
            tell(done, total)

        yield silent
        return
    from rich import progress as rich
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield _lines(what, total, console.print)
        return
    time = rich.TimeElapsedColumn(), rich.TextColumn("left"), rich.TimeRemainingColumn()
    columns = rich.TextColumn("{task.description}"), rich.BarColumn(), rich.TaskProgressColumn(), *time
    with rich.Progress(*columns, console=console, transient=True, speed_estimate_period=float("inf")) as bar:
        task = bar.add_task(what, total=total)
        yield lambda amount: bar.advance(task, amount)


def _lines(what: str, total: float, say: Callable[[str], None], every: float = 10.0) -> Callable[[float], None]:
    """Return advance(amount), which writes at most one line per `every` seconds, and one when the work is done."""
    start = last = perf_counter()
    done = 0.0

    def advance(amount: float) -> None:
        nonlocal done, last
        done += amount
        now = perf_counter()
        if done >= total or now - last >= every:
            last, spent = now, now - start
            left = f", {max(spent * (total / done - 1), 0):.0f} s left" if done > 0.02 * total else ""
            say(f"{what}: {min(done / total, 1):.0%}, {spent:.0f} s{left}")

    return advance


HOUR = 3600.0
"""The shortest remaining time, in seconds, for which `forewarned` warns."""


def forewarned(what: str, first: float = 0, every: float = 10.0) -> Callable[[float, float], None]:
    """Return progress(done, total), which warns once on stderr if an hour of work or more remains.

    first : the amount of work done before this call.  every : seconds of work before the first estimate.

    >>> advance = forewarned("counting")
    >>> advance(1, 2)
    """
    start, said = perf_counter(), False

    def progress(done: float, total: float) -> None:
        nonlocal said
        spent = perf_counter() - start
        if not said and spent >= every and done > first and (left := spent * (total - done) / (done - first)) >= HOUR:
            said = True
            time = f"{left / HOUR:.2g} hours" if left < 48 * HOUR else f"{left / HOUR / 24:.0f} days"
            remedy = "store= or checkpoint= keeps what is done if it is stopped, progress= tells how far it is"
            sys.stderr.write(f"minintk: {what} will take about {time} on this machine: {remedy}\n")

    return progress
