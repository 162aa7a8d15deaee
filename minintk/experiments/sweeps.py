"""Sweeps: a grid of runs, each kept as soon as it is done: a kill at any moment costs the runs in progress only.

    def work(alpha: float, width: int, seed: tuple[int, ...]) -> list[dict[str, float]]:
        net = mn.Network(...)
        theta0 = np.stack([net.init(np.random.default_rng(s)) for s in seed])       # (E, P): the seeds train together
        ...
        return [{"error": error, "t1": t1} for error, t1 in zip(errors, times)]     # one result a seed

    table = mn.sweep(work, {"alpha": [.1, 1., 10.], "width": [64, 128], "seed": range(20)}, together="seed", batch=10,
                     store="runs/alpha-width")
    table["error"].mean(axis=-1)                                                    # (3, 2): alpha x width

Every run is one file in ``store/records``, written beside its place and renamed; runs that have one are not repeated.
Which runs share a call of `work` follows from the grid and `batch` alone, never from what is left to do, so a resumed
sweep computes each run in the company it would have had, and ends with the same ``results.json``, byte for byte (on the
same machine, libraries and number of threads).
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, as_completed
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from types import CellType, MethodType
from typing import Any

import numpy as np

from minintk.arrays import to_host
from minintk.progress import progress_of
from minintk.training.checkpoints import _arrays, _digest, made_folder, write_atomically

Work = Callable[..., Any]
Point = dict[str, Any]
Result = dict[str, Any]


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """The results of a sweep.

    grid : {name: values}.  results : one for each point, in the grid's order, the last axis fastest.
    table["error"] is an array of the shape of the grid, with whatever axes each result has behind them.

    >>> table = Table({"width": (4, 8), "seed": (0, 1, 2)}, [{"loss": float(i)} for i in range(6)])
    >>> table["loss"].shape, float(table["loss"][1, 0])
    ((2, 3), 3.0)
    """

    grid: dict[str, tuple[Any, ...]]
    results: list[Result]

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        """What the runs returned under this name; KeyError, with the names there are, where one did not."""
        if missing := [i for i, result in enumerate(self.results) if name not in result]:
            raise KeyError(f"{name!r}: the result at {self.points[missing[0]]} has {list(self.results[missing[0]])}")
        values = np.array([result[name] for result in self.results])
        return values.reshape((*self.shape, *values.shape[1:]))

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of values along each axis of the grid."""
        return tuple(len(values) for values in self.grid.values())

    @property
    def points(self) -> list[Point]:
        """{name: value} of every run."""
        return [dict(zip(self.grid, values)) for values in product(*self.grid.values())]

    def __repr__(self) -> str:
        axes = ", ".join(f"{name} {len(values)}" for name, values in self.grid.items())
        return f"Table({axes}: {', '.join(self.results[0]) if self.results else 'empty'})"


def sweep(
    work: Work,
    grid: Mapping[str, Sequence[Any]],
    *,
    store: str | os.PathLike[str],
    together: str | None = None,
    batch: int | None = None,
    executor: Executor | None = None,
    progress: bool = False,
) -> Table:
    """Run `work` at every point of a grid, or read what an earlier, interrupted sweep has kept; returns the table.

    work : called as work(alpha=..., width=..., seed=...), returns {name: number, text, list or array}.  What it
        computes must follow from its arguments alone.  An executor of processes must be able to import it.
    grid : {name: values}, numbers, text, True, False or None (inf is a number); every combination is a run.
    together : the name of the axis that `work` takes several values of at once, as a tuple, to train them along the
        ensemble axis; it then returns a list with one result for each.  batch : how many at most, all unless given.
    store : a folder.  It may hold runs of a smaller or another grid of the same work; two sweeps there at once do
        their work twice, and spoil nothing.
    executor : any `concurrent.futures.Executor`; this process, one call after the other, unless given.
    progress : a bar with the time left, on stderr.

    Where work raises, the error is raised with the point it happened at; what was finished is kept, and what an
    executor is at finishes first, and is kept too.  ValueError where the store belongs to another work (its name, and
    what functools.partial, an object or an enclosing function has given it; an edited function is not noticed: take
    another folder), for a damaged record, NaN in a result, and a grid that does not fit.

    >>> import tempfile
    >>> def power(base: int, exponent: tuple[int, ...]) -> list[dict[str, int]]:
    ...     return [{"value": base**e} for e in exponent]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table = sweep(power, {"base": [2, 3], "exponent": range(4)}, together="exponent", store=folder)
    >>> table["value"].tolist()
    [[1, 2, 4, 8], [1, 3, 9, 27]]
    """
    if not callable(work):
        raise TypeError(f"work expects a function, called as work(name=value, ...), got {work!r}")
    if executor is not None and not isinstance(executor, Executor):
        raise TypeError(f"executor expects a concurrent.futures.Executor, got {executor!r}")
    axes = _axes(grid, together, batch)
    records = made_folder(store, "store=") / "records"
    records.mkdir(exist_ok=True)
    _claim(Path(store) / "work.json", {"format": 1, "work": _name(work)})
    calls = list(_calls(axes, together, batch))
    kept = {call: call.read(records) for call in calls}
    missing = [call for call in calls if kept[call] is None]
    with progress_of("sweep", sum(len(call.points) for call in missing), progress) as advance:

        def keep(call: _Call, returned: Any) -> None:
            call.write(records, call.results(returned))
            kept[call] = call.read(records)
            advance(len(call.points))

        _run(work, missing, executor, keep)
    found = {_key(point): result for call in calls for point, result in zip(call.points, kept[call] or [])}
    points = [dict(zip(axes, values)) for values in product(*axes.values())]
    table = Table(axes, [found[_key(point)] for point in points])
    rows = [{"point": point, "result": result} for point, result in zip(points, table.results)]
    _write(Path(store) / "results.json", {"grid": axes, "rows": rows})
    return table


@dataclass(frozen=True, eq=False)
class _Call:
    """One call of `work`: its arguments, and the points it answers for."""

    arguments: Point
    points: tuple[Point, ...]
    several: bool

    def path(self, records: Path, point: Point) -> Path:
        """The file of one run: named by the point and by the company it was computed in."""
        return records / f"{hashlib.sha256(_key([point, self.arguments]).encode()).hexdigest()[:24]}.json"

    def read(self, records: Path) -> list[Result] | None:
        """The results of all its points, None where one is missing."""
        results = []
        for point in self.points:
            path = self.path(records, point)
            try:
                record = json.loads(path.read_text(encoding="utf-8"))
                if record["point"] != json.loads(_key(point)):
                    raise ValueError(f"it is that of {record['point']}")
                results.append(dict(record["result"]))
            except FileNotFoundError:
                return None
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(
                    f"{path}, the record of {point}, is damaged ({error}): delete it to run that point again"
                ) from error
        return results

    def write(self, records: Path, results: list[Result]) -> None:
        """One atomic record each."""
        for point, result in zip(self.points, results):
            _write(self.path(records, point), {"point": point, "result": result})

    def results(self, returned: Any) -> list[Result]:
        """What `work` returned, as results for JSON; TypeError or ValueError where it is none."""
        many = list(returned) if self.several and isinstance(returned, Sequence) else [returned]
        if len(many) != len(self.points) or not all(isinstance(result, Mapping) for result in many):
            want = f"a list of {len(self.points)} results" if self.several else "a result"
            raise TypeError(f"work({_words(self.arguments)}) must return {want} {{name: value}}, got {returned!r:.200}")
        return [{str(name): _value(point, name, a) for name, a in result.items()}
                for point, result in zip(self.points, many)]  # fmt: skip


def _calls(axes: Mapping[str, tuple[Any, ...]], together: str | None, batch: int | None) -> Iterator[_Call]:
    """The calls of `work` that the grid takes."""
    outer = {name: values for name, values in axes.items() if name != together}
    for values in product(*outer.values()):
        fixed = dict(zip(outer, values))
        if together is None:
            yield _Call(fixed, (fixed,), several=False)
            continue
        members = axes[together]
        size = batch or len(members)
        for i in range(0, len(members), size):
            share = members[i : i + size]
            points = tuple({name: fixed.get(name, member) for name in axes} for member in share)
            yield _Call({name: fixed.get(name, share) for name in axes}, points, several=True)


def _run(work: Work, calls: list[_Call], executor: Executor | None, keep: Callable[[_Call, Any], None]) -> None:
    """Make the calls, and `keep` what each returned as it gets done."""
    if executor is None:
        for call in calls:
            with _told(call):
                returned = work(**call.arguments)
            keep(call, returned)
        return
    futures = {executor.submit(work, **call.arguments): call for call in calls}
    taken = set()

    def take(future: Future[Any]) -> None:
        taken.add(future)
        with _told(futures[future]):
            returned = future.result()
        keep(futures[future], returned)

    try:
        for future in as_completed(futures):
            take(future)
    except Exception:
        running = [future for future in futures if future not in taken and not future.cancel()]
        for future in as_completed(running):  # no executor stops these: what they find is kept
            with suppress(Exception):
                take(future)
        raise
    finally:
        for future in futures:
            future.cancel()


class _told:
    """Adds to an error where in the grid it happened."""

    def __init__(self, call: _Call) -> None:
        self.call = call

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None:
            error.add_note(f"in the sweep's call work({_words(self.call.arguments)})")


# ------------------------------------------------------------------------------------------- files, checks


def _axes(grid: Mapping[str, Sequence[Any]], together: str | None, batch: int | None) -> dict[str, tuple[Any, ...]]:
    """The grid in tuples of Python's own numbers; ValueError where it is none."""
    if not isinstance(grid, Mapping):
        raise TypeError(f"grid expects {{name: values}}, got {grid!r}")
    axes = {}
    for name, values in grid.items():
        several = isinstance(values, Iterable) and not isinstance(values, str) and getattr(values, "ndim", 1) > 0
        items = tuple(value.item() if isinstance(value, np.generic) else value for value in values) if several else ()
        for item in items:
            if not (item is None or isinstance(item, (bool, int, float, str))) or item != item:
                raise ValueError(f"grid[{name!r}] expects numbers, text, True, False or None, got {item!r}")
        if not items or len({_key(item) for item in items}) < len(items):
            raise ValueError(f"grid[{name!r}] expects different values, one at least, got {values!r}")
        axes[name] = items
    if not axes:
        raise ValueError("grid expects one name at least, got {}")
    if not axes or (together is not None and together not in axes):
        raise ValueError(f"together expects one of the grid's names, {list(axes)}, got {together!r}")
    if batch is not None and (
        together is None or isinstance(batch, bool) or not hasattr(batch, "__index__") or batch < 1
    ):
        raise ValueError(f"batch expects a whole number >= 1, and together= to say of what, got {batch!r}")
    return axes


def _value(point: Point, name: Any, value: Any) -> Any:
    """A result's value as JSON holds it, floats with all their digits; ValueError for NaN, TypeError for the rest."""

    def constant(text: str) -> float:
        if text == "NaN":
            raise ValueError(f"the result {name!r} at {point} is NaN: look for the cause, or return None for no value")
        return float(text)

    def plain(a: Any) -> Any:
        if hasattr(a, "dtype"):
            return to_host(a).tolist()
        raise TypeError(f"the result {name!r} at {point} expects numbers, text, lists or arrays, got {a!r}")

    return json.loads(json.dumps(value, default=plain), parse_constant=constant)


def _claim(path: Path, mine: dict[str, Any]) -> None:
    """Mark the store as that of this work; ValueError where it is another's."""
    if not path.exists():
        _write(path, mine)
        return
    try:
        theirs = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}): take another folder as store") from error
    if theirs != mine:
        raise ValueError(f"{path.parent} holds the runs of {theirs}, not of {mine}: take another folder as store")


def _name(work: Any) -> str:
    """What a work calls itself: its module and name, and what has been bound to it, arrays by their digest.

    Bound by functools.partial, by an enclosing function, or as the attributes of an object that is called.
    """
    if isinstance(work, partial):
        bound = [*map(_bound, work.args), *(f"{name}={_bound(value)}" for name, value in work.keywords.items())]
        return f"{_name(work.func)}({', '.join(bound)})"
    if isinstance(work, MethodType):
        return f"{_name(work.__func__)} of {_bound(work.__self__)}"
    module = getattr(work, "__module__", "")
    if module == "__main__":  # run as a script, or imported: the same work
        main = sys.modules["__main__"]
        module = getattr(main.__spec__, "name", None) or Path(getattr(main, "__file__", module)).stem
    if hasattr(work, "__qualname__"):
        closed = zip(work.__code__.co_freevars, work.__closure__) if getattr(work, "__closure__", None) else ()
        return f"{module}:{work.__qualname__}{_given(dict(closed))}"
    return f"{module}:{type(work).__qualname__}{_given(getattr(work, '__dict__', {}))}"


def _given(values: Mapping[Any, Any]) -> str:
    """What a function has from the one around it, or an object in its attributes: the plain values and arrays of it."""
    told = []
    for name, value in values.items():
        try:
            item = value.cell_contents if isinstance(value, CellType) else value
        except ValueError:  # not set yet
            continue
        if item is None or isinstance(item, (bool, int, float, str, tuple)) or _is_array(item):
            told.append(f"{name}={_bound(item)}")
    return f"({', '.join(told)})" if told else ""


def _silent(value: Any) -> bool:
    """Whether its repr is an address, another one in every process."""
    return getattr(type(value), "__repr__", None) is getattr(object, "__repr__", None)


def _is_array(value: Any) -> bool:
    return hasattr(value, "dtype") and hasattr(value, "ndim")


def _bound(value: Any) -> str:
    """A bound argument in words, the same in every process."""
    if _is_array(value):
        return f"array {_digest(value)}" if value.ndim else repr(value)
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(_bound, value))})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name!r}: {_bound(item)}' for name, item in value.items())}}}"
    if hasattr(value, "__qualname__") or _silent(value):
        return _name(value)
    arrays = list(_arrays(value)) if hasattr(value, "__dict__") else []
    return f"{value!r} with {_digest(*arrays)}" if arrays else repr(value)


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _words(arguments: Point) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items())


def _write(path: Path, content: Any) -> None:
    text = json.dumps(content, indent=1)
    write_atomically(path, lambda file: file.write(f"{text}\n".encode()), f".{os.getpid()}-{threading.get_ident()}")
