"""Run sweeps over grids.  Results are saved as soon as their call ends, so a killed sweep loses only unfinished calls.

Each result is written atomically to its own file in ``store/records``; a call whose files all exist is not repeated.
Processes that use the same store divide the calls among them (see docs/long-runs.md).  Only `grid`, `together` and
`batch` decide which runs share a call of `work`.  A resumed sweep therefore writes the same ``results.json`` as an
uninterrupted one, byte for byte (on the same machine, with the same libraries and number of threads).
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from minintk.arrays import to_host
from minintk.files.locks import Claim, InTurn, in_flight, remove_claims, shared
from minintk.files.reading import read_json
from minintk.files.writing import digest, holds, made_folder, write_atomically, write_bytes
from minintk.lab.experiments.costs import Costs
from minintk.progress import progress_of
from minintk.training.checkpoints import identity
from minintk.validate import whole

Work = Callable[..., Any]
Point = dict[str, Any]
Result = dict[str, Any]

DIVERGED = "diverged"
"""The key of the message in the result of a run that raised FloatingPointError."""


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """The results of a sweep.

    grid : {name: values}.  results : one for each grid point, ordered so that the last axis varies fastest.
    table["error"] has the shape of the grid, followed by the shape of one value.  It is NaN for diverged runs.

    >>> results = [{"loss": float(i)} for i in range(5)] + [{"diverged": "at step 3"}]
    >>> table = Table({"width": (4, 8), "seed": (0, 1, 2)}, results)
    >>> table["loss"].shape, float(table["loss"][1, 0]), table.diverged.tolist()
    ((2, 3), 3.0, [[False, False, False], [False, False, True]])
    """

    grid: dict[str, tuple[Any, ...]]
    results: list[Result]

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        """Return the value `name` of every run.  If a run lacks it, raise KeyError with the names that this run has."""
        diverged = self.diverged.ravel()
        if missing := [i for i, result in enumerate(self.results) if name not in result and not diverged[i]]:
            raise KeyError(f"{name!r}: the result at {self.points[missing[0]]} has {list(self.results[missing[0]])}")
        some = next((np.asarray(result[name]) for result in self.results if name in result), np.array(np.nan))
        values = np.array([result.get(name, np.full(some.shape, np.nan)) for result in self.results])
        return values.reshape((*self.shape, *some.shape))

    @property
    def diverged(self) -> np.ndarray[Any, Any]:
        """Return a boolean array with the shape of the grid, True for each run that raised FloatingPointError."""
        return np.array([isinstance(result.get(DIVERGED), str) for result in self.results]).reshape(self.shape)

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write one line per run, with its grid point and the values that it returned.  Lists are written as JSON."""
        names = dict.fromkeys(name for result in self.results for name in result)
        text = io.StringIO(newline="")
        lines = csv.DictWriter(text, [*(dict.fromkeys(self.grid) | names)])
        lines.writeheader()
        for point, result in zip(self.points, self.results):
            plain = {name: json.dumps(v) if isinstance(v, (list, dict)) else v for name, v in result.items()}
            lines.writerow(point | plain)
        write_atomically(path, lambda file: file.write(text.getvalue().encode()))

    def to_pandas(self) -> Any:
        """Return a pandas.DataFrame with one row per run.  This needs the extra `tables`."""
        import pandas

        return pandas.DataFrame([point | result for point, result in zip(self.points, self.results)])

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the number of values along each axis of the grid."""
        return tuple(len(values) for values in self.grid.values())

    @property
    def points(self) -> list[Point]:
        """Return the grid points {name: value}, one for each run."""
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
    part: tuple[int, int] | None = None,
    executor: Executor | None = None,
    progress: bool = False,
) -> Table:
    """Run `work` at all points of a grid, except those with a saved result, and return all results as a `Table`.

    work : a function that is called as work(alpha=..., width=..., seed=...) and returns {name: number, text, list or
        array}.  The result must depend only on the arguments, and `work` must not change what its closure binds.
        For a process executor, `work` must be importable.
    grid : {name: values}, where values are numbers (or inf), text, True, False or None.  All combinations are run.
    together : the name of one axis.  `work` then receives a tuple of its values, e.g. the seeds of an ensemble, and
        returns a list with one result per value.  batch : the number of values per call.  Defaults to all.
    store : the folder for results.  It can contain runs of the same `work` on another grid.  Processes that use it at
        the same time divide the calls among them, and each returns the whole table.
    part : (i, n), to make only the calls i, i + n, i + 2 n, ... of this grid.  The result of a missing run is then {},
        and ``results.json`` is not written until all runs are saved.
    executor : any `concurrent.futures.Executor`.  By default, calls run one after the other in this process.
    progress : True to show a bar with the remaining time on stderr, estimated from the finished calls.

    A run in which `work` raises FloatingPointError, as `mn.train` does if it diverges, is recorded as {"diverged":
    message}.  If the call contained several runs, each is repeated separately.  Any other error in `work` is raised
    again, with a note that contains the arguments.  Finished runs, and runs that an executor has started, are kept.
    Raises ValueError if the store belongs to another `work`, a record is damaged, a result contains NaN, or the grid is
    invalid.  `work` is identified by its name and by the values that functools.partial, an object or a closure binds.
    After editing it, use another folder, because the edit is not detected.

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
    axes, mine = _axes(grid, together, batch), _of_part(part)
    folder = _folder_of(work, store)
    calls = list(_calls(folder, axes, together, batch))
    kept = {call: call.read() for call in calls}
    missing = [call for call in calls[mine] if kept[call] is None]
    costs, place = Costs([call.arguments for call in missing], [len(call.points) for call in missing]), 0.0
    with progress_of("sweep", 1.0, progress) as advance:

        def finished(call: _Call, seconds: float | None = None) -> bool:
            nonlocal place
            if kept[call] is None and (found := call.read()) is not None:
                kept[call] = found
                before, place = place, costs.ended(missing.index(call), seconds) if progress else 0.0
                advance(place - before)
            return kept[call] is not None

        def keep(call: _Call, returned: tuple[Any, float]) -> None:
            call.write(call.results(returned[0]))
            finished(call, returned[1])

        with closing(shared(missing, _Call.claim, finished)) as units:
            _run(partial(_timed, work, together), units, executor, keep)
    kept = {call: results or call.read() for call, results in kept.items()}  # other processes may have made more calls
    remove_claims(call.claim() for call, results in kept.items() if results is not None)
    found = {_key(point): result for call in calls for point, result in zip(call.points, kept[call] or [])}
    table = Table(axes, [found.get(_key(dict(zip(axes, values))), {}) for values in product(*axes.values())])
    if len(found) == len(table.results):
        rows = [{"point": point, "result": result} for point, result in zip(table.points, table.results)]
        path, text = folder / "results.json", _text({"grid": axes, "rows": rows})
        if not holds(path, text):
            with Claim(folder / "sweep.lock", wait=True):
                write_bytes(path, text)
    return table


@dataclass(frozen=True, eq=False)
class _Call:
    """One call of `work`, with its arguments and the grid points (one or more) that it computes."""

    folder: Path
    arguments: Point
    points: tuple[Point, ...]
    several: bool

    def claim(self) -> Path:
        """Return the path of the file whose lock claims this call."""
        return self.folder / "claims" / f"{digest(_key(self.arguments))}.lock"

    def path(self, point: Point) -> Path:
        """Return the file of one run, named after its grid point and all arguments of its call."""
        return self.folder / "records" / f"{digest(_key([point, self.arguments]))}.json"

    def read(self) -> list[Result] | None:
        """Read the results of all points from their files.  Return None if one is missing."""
        results, remedy = [], "delete it to run that point again"
        for point in self.points:
            path = self.path(point)
            try:
                record = read_json(path, f"the record of {point}", remedy)
            except FileNotFoundError:
                return None
            of = record.get("point") if isinstance(record, dict) else None
            if of != json.loads(_key(point)) or not isinstance(record.get("result"), dict):
                raise ValueError(f"{path} is damaged: expected the record of {point}, got that of {of}: {remedy}")
            results.append(record["result"])
        return results

    def write(self, results: list[Result]) -> None:
        """Save one record for each point.  The caller must hold the call's claim."""
        for point, result in zip(self.points, results):
            write_bytes(self.path(point), _text({"point": point, "result": result}))

    def results(self, returned: Any) -> list[Result]:
        """Convert the value returned by `work` to one JSON result per point.  Raise an error if this is impossible."""
        many = list(returned) if self.several and isinstance(returned, Sequence) else [returned]
        if len(many) != len(self.points) or not all(isinstance(result, Mapping) for result in many):
            want = f"a list of {len(self.points)} results" if self.several else "a result"
            raise TypeError(f"work({_words(self.arguments)}) must return {want} {{name: value}}, got {returned!r:.200}")
        return [{str(name): _value(point, name, a) for name, a in result.items()}
                for point, result in zip(self.points, many)]  # fmt: skip


Job = tuple[_Call, Claim]


def _attempt(work: Work, together: str | None, arguments: Point) -> Any:
    """Call `work`.  If it diverges, run its points separately, and record which of them diverge."""
    try:
        return work(**arguments)
    except FloatingPointError as error:
        if together is None:
            return {DIVERGED: str(error)}
        members = arguments[together]
        if len(members) == 1:
            return [{DIVERGED: str(error)}]
    return [result for member in members for result in _attempt(work, together, arguments | {together: (member,)})]


def _timed(work: Work, together: str | None, arguments: Point) -> tuple[Any, float]:
    """Return the result of `_attempt`, and its duration in seconds."""
    start = perf_counter()
    return _attempt(work, together, arguments), perf_counter() - start


def _calls(
    folder: Path, axes: Mapping[str, tuple[Any, ...]], together: str | None, batch: int | None
) -> Iterator[_Call]:
    """Yield the calls of `work` that together cover the grid."""
    outer = {name: values for name, values in axes.items() if name != together}
    members = axes[together] if together else (None,)
    size = batch or len(members)
    for values, i in product(product(*outer.values()), range(0, len(members), size)):
        fixed, share = dict(zip(outer, values)), members[i : i + size]
        points = tuple({name: fixed.get(name, member) for name in axes} for member in share)
        yield _Call(folder, {name: fixed.get(name, share) for name in axes}, points, together is not None)


def _run(
    work: Work, units: Iterator[Job | None], executor: Executor | None, keep: Callable[[_Call, Any], None]
) -> None:
    """Make the calls that this process can claim, and pass each result to `keep` as it arrives."""
    failed: list[Exception] = []

    def submit(job: Job) -> Future[Any]:
        return (executor or InTurn()).submit(work, job[0].arguments)

    with closing(in_flight(units, submit, executor, lambda: bool(failed))) as calls:
        for (call, claim), future in calls:
            with claim:
                try:
                    keep(call, future.result())
                except Exception as error:  # calls in progress cannot be stopped: keep their results
                    error.add_note(f"in the sweep's call work({_words(call.arguments)})")
                    failed.append(error)
    if failed:
        raise failed[0]


def _of_part(part: tuple[int, int] | None) -> slice:
    """Return the slice i, i + n, ... of the calls for part=(i, n).  Raise ValueError unless 0 <= i < n."""
    if part is None:
        return slice(None)
    if not (isinstance(part, tuple) and [*map(type, part)] == [int, int] and 0 <= part[0] < part[1]):
        raise ValueError(f"part expects (i, n), two whole numbers with 0 <= i < n, got {part!r}")
    return slice(part[0], None, part[1])


def _axes(grid: Mapping[str, Sequence[Any]], together: str | None, batch: int | None) -> dict[str, tuple[Any, ...]]:
    """Return {name: tuple of Python values} for the grid.  Raise TypeError or ValueError if an argument is invalid."""
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
    if together is not None and together not in axes:
        raise ValueError(f"together expects one of the grid's names, {list(axes)}, got {together!r}")
    if batch is not None and whole("batch", batch) and together is None:
        raise ValueError(f"batch expects together=, to say of what, got {batch!r}")
    return axes


def _value(point: Point, name: Any, value: Any) -> Any:
    """Return the value as read back from JSON.  Raise ValueError for NaN, TypeError for other non-JSON values."""

    def constant(text: str) -> float:
        if text == "NaN":
            raise ValueError(f"the result {name!r} at {point} is NaN: look for the cause, or return None for no value")
        return float(text)

    def plain(a: Any) -> Any:
        if hasattr(a, "dtype"):
            return to_host(a).tolist()
        raise TypeError(f"the result {name!r} at {point} expects numbers, text, lists or arrays, got {a!r}")

    return json.loads(json.dumps(value, default=plain), parse_constant=constant)


def _folder_of(work: Work, store: str | os.PathLike[str]) -> Path:
    """Set up the folder of a sweep and return its path.  Raise ValueError if it belongs to another `work`."""
    folder, mine = made_folder(store, "store="), {"format": 1, "work": identity(work)}
    for name in ("records", "claims"):
        (folder / name).mkdir(exist_ok=True)
    path = folder / "work.json"
    if not path.exists():
        with Claim(folder / "sweep.lock", wait=True):
            if not path.exists():
                if any((folder / "records").glob("*.json")):
                    remedy = "delete the folder, or take another one as store"
                    raise ValueError(f"{folder} holds records, and no work.json that says of which work: {remedy}")
                write_bytes(path, _text(mine))
    if (theirs := read_json(path, "the description of a sweep", "take another folder as store")) != mine:
        raise ValueError(f"{folder} holds the runs of {theirs}, not of {mine}: take another folder as store")
    return folder


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _words(arguments: Point) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items())


def _text(content: Any) -> bytes:
    return f"{json.dumps(content, indent=1)}\n".encode()
