"""A backward function against differences of its forward function, argument by argument, and what a wrong one looks
like.

The derivative of the output y with respect to an argument a is a matrix.  `backward`, called with each unit cotangent,
gives its rows; differences of `forward` give its columns:

    dy/da_i = (y(a + h e_i) - y(a - h e_i)) / 2h,    h = 2^-17 times the size of a

in float64.  Rounding puts these off by eps |y| / h = 3e-11 |y|, and the next term of Taylor's series by h^2/6 of a
third derivative, so that 1e-6 of the largest entry leaves room for a thousand roundings; a wrong formula is off by more
than that. Where the two one-sided differences do not meet as h does, y has a kink: that entry is not compared.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minintk.grade import worker
from minintk.grade.compare import differs
from minintk.grade.diagnosis import Diagnosis, Finding
from minintk.grade.suspects import RTOL, close, dimensions, explain, multiple, scaled, summed

Values = np.ndarray[Any, Any]
H, LARGEST = 2.0**-17, 4096


def check_gradient(
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    args: Sequence[Any],
    *,
    wrt: Sequence[int] | None = None,
    suspects: Mapping[str, Callable[..., Any]] | None = None,
    float32: bool = True,
    hard: bool = True,
) -> Diagnosis:
    """Whether backward gives the gradients of <u, forward(*args)> in every argument, and if not, which, and what is
    wrong.

    forward(*args) -> y, and backward(u, *args) -> one gradient for each argument (None for those that are not arrays of
    floating-point numbers); or forward(*args) -> (y, cache), and backward(u, cache).  A dict {"W": ...} or {"dW": ...}
    will do.
    args : small ones, a few entries along each axis, and every axis of another length, so that a transpose shows.
    wrt : positions of the arguments to differentiate, all arrays of floating-point numbers by default.
    suspects : {what it looks like: another backward function}, mistakes of this exercise to be told by name.
    float32 : whether float32 arguments must give float32 gradients.  hard : try ties and zeros too.
    ValueError for arguments with no array to differentiate, or with more than 4096 entries; TypeError for no functions.

    >>> def dense(x, W, b): return x @ W + b
    >>> def backward(u, x, W, b): return u @ W.T, x.T @ u, u.mean(axis=0)
    >>> rng = np.random.default_rng(0)
    >>> args = rng.standard_normal((5, 3)), rng.standard_normal((3, 4)), rng.standard_normal(4)
    >>> print(check_gradient(dense, backward, args))
    db: right but for a factor 0.2 = 1/N: a mean where a sum belongs
    """
    if not callable(forward) or not callable(backward):
        raise TypeError(f"check_gradient expects two functions, got {forward!r} and {backward!r}")

    def value(*a: Any) -> tuple[Any, list[int]]:
        y, changed = worker.watched(forward, a)
        return worker.split(y)[0], changed

    def pull(u: Any, *a: Any) -> tuple[Any, list[int]]:
        return worker.pull(forward, backward, u, a)

    named = dict(suspects or {})
    wrong = {text: lambda u, *a, f=f: worker.pull(forward, f, u, a) for text, f in named.items()}
    return check_pair(
        value, pull, args, _names(forward, len(args)), wrt=wrt, suspects=wrong, float32=float32, hard=hard
    )


def _names(forward: Callable[..., Any], count: int) -> list[str]:
    try:
        found = list(inspect.signature(forward).parameters)
    except (TypeError, ValueError):
        found = []
    return found if len(found) == count else [f"arg{i}" for i in range(count)]


def check_pair(
    value: Callable[..., tuple[Any, list[int]]],
    pull: Callable[..., tuple[Any, list[int]]],
    args: Sequence[Any],
    names: Sequence[str],
    *,
    wrt: Sequence[int] | None = None,
    suspects: Mapping[str, Callable[..., Any]] | None = None,
    float32: bool = True,
    hard: bool = True,
    numbers: Mapping[str, float] | None = None,
) -> Diagnosis:
    """`check_gradient` for functions that run elsewhere, in a student's process say.

    value(*args) -> (y, changed) and pull(u, *args) -> (gradients, changed), with `changed` the positions of the
    arguments that the call has changed in place, -1 for u; names : of the arguments.  numbers : what else a factor may
    be made of.
    """
    double = [a.astype(np.float64) if _floating(a) else a for a in args]
    where = [i for i, a in enumerate(double) if _floating(a)] if wrt is None else list(wrt)
    if not where or any(not _floating(double[i]) for i in where):
        raise ValueError("args expects at least one array of floating-point numbers, which its gradient is taken in")
    check = _Check(value, pull, double, list(names), where, dict(suspects or {}), dict(numbers or {}))
    check.run(float32, hard)
    return Diagnosis(tuple(dict.fromkeys(check.findings)))


def derivative(f: Callable[[Sequence[Any]], Values], args: Sequence[Any], i: int) -> Values:
    """df/d(args[i]) by differences, (*y.shape, *a.shape), NaN on kinks; f takes the arguments as one sequence."""
    a = args[i]
    h = H * ((float(np.sqrt(np.mean(a * a))) if a.size else 0.0) or 1.0)
    middle = f(args)
    noise = 100 * np.finfo(np.float64).eps * float(np.abs(middle).max(initial=0.0)) / h
    columns = np.empty((a.size, middle.size))
    for k in range(a.size):
        step = np.zeros(a.shape)
        step.flat[k] = h
        above, below = (f([*args[:i], a + s * step, *args[i + 1 :]]) for s in (1, -1))
        columns[k] = ((above - below) / (2 * h)).ravel()
        jump = np.abs(above + below - 2 * middle).ravel() / h
        columns[k, jump > 1e-2 * np.abs(columns[k]).max(initial=0.0) + noise] = np.nan
    return columns.T.reshape(*middle.shape, *a.shape)


def _floating(a: Any) -> bool:
    return isinstance(a, np.ndarray) and a.dtype.kind == "f"


def _copies(args: Sequence[Any]) -> list[Any]:
    return [np.array(a) if _floating(a) else a for a in args]


@dataclass
class _Check:
    """One check on its way: functions, arguments, what was found."""

    value: Callable[..., tuple[Any, list[int]]]
    pull: Callable[..., tuple[Any, list[int]]]
    args: list[Any]
    names: list[str]
    where: list[int]
    suspects: dict[str, Callable[..., Any]]
    numbers: dict[str, float]
    findings: list[Finding] = field(default_factory=list)
    y: Values = field(init=False)
    u: Values = field(init=False)

    def run(self, float32: bool, hard: bool) -> None:
        y = self.output()
        if y is None:
            return
        size = y.size + sum(self.args[i].size for i in self.where)
        if size > LARGEST:
            raise ValueError(f"args and output have {size} entries in all; use fewer, at most {LARGEST}")
        self.y = y
        given = zip(self.names, self.args)
        numbers = {n: float(a) for n, a in given if isinstance(a, int | float) and not isinstance(a, bool)}
        shapes = {self.names[i]: self.args[i].shape for i in self.where}
        shapes = {"y": y.shape or shapes[self.names[self.where[0]]]} | shapes
        self.sizes = dimensions(shapes, numbers | self.numbers)
        self.u = np.asarray(np.random.default_rng(0).standard_normal(y.shape))
        self.right = {i: derivative(self.f, self.args, i) for i in self.where}
        shown = self.first()
        got = self.rows(shown)
        for i in shown:
            self.judge(i, got)
        if hard and not self.findings:
            self.kinks()
        if float32 and not self.findings:
            self.dtypes()

    def say(self, where: str, cause: str, text: str) -> None:
        self.findings.append(Finding(where, cause, text))

    def d(self, i: int) -> str:
        return f"d{self.names[i]}" if i >= 0 else "u"

    # ------------------------------------------------------------------------------------------- forward

    def output(self) -> Values | None:
        """y in float64, None if it is no use."""
        y, changed = self.value(*_copies(self.args))
        for i in changed:
            self.say("forward", "in place", f"it changes {self.names[i]} in place: work on a copy")
        if not isinstance(y, np.ndarray | np.floating | float) or np.asarray(y).dtype.kind != "f":
            self.say("forward", "wrong kind", f"expected an array of floating-point numbers, got {type(y).__name__}")
            return None
        y = np.asarray(y, dtype=np.float64)
        if not np.all(np.isfinite(y)):
            self.say("forward", "nan", f"it gives {y[~np.isfinite(y)][0]} for ordinary arguments")
            return None
        if not np.array_equal(y, self.f(self.args)):
            self.say("forward", "random", "two calls with the same arguments give different results")
            return None
        return y

    def f(self, args: Sequence[Any]) -> Values:
        return np.asarray(self.value(*_copies(args))[0], dtype=np.float64)

    # ------------------------------------------------------------------------------------------ backward

    def gradients(self, u: Values, args: Sequence[Any], pull: Any = None) -> tuple[list[Any], list[int]]:
        """One gradient (or None) for each argument in `where`, positions of what was changed in place."""
        got, changed = (pull or self.pull)(np.array(u), *_copies(args))
        if isinstance(got, Mapping):
            return [got.get(self.names[i], got.get(self.d(i))) for i in self.where], changed
        got = list(got) if isinstance(got, tuple | list) else [got]
        arrays = [i for i, a in enumerate(args) if _floating(a)]
        for given in (self.where, list(range(len(args))), arrays):
            if len(got) == len(given):
                return [got[given.index(i)] for i in self.where], changed
        return got, changed

    def gradient(self, i: int, u: Values, args: Sequence[Any], pull: Any = None) -> Values:
        """That of one argument, in float64."""
        return np.asarray(self.gradients(u, args, pull)[0][self.where.index(i)], dtype=np.float64)

    def first(self) -> list[int]:
        """Call backward twice with one random cotangent; the arguments whose gradients are worth a closer look."""
        got, changed = self.gradients(self.u, self.args)
        if len(got) != len(self.where):
            what = ", ".join(self.d(i) for i in self.where)
            self.say("backward", "wrong number", f"expected {len(self.where)} gradients ({what}), got {len(got)}")
            return []
        for i in changed:
            what = self.names[i] if i >= 0 else "u"
            self.say(self.d(i), "in place", f"backward changes {what} in place: work on a copy")
        again, _ = self.gradients(self.u, self.args)
        fine = []
        for i, g, g2 in zip(self.where, got, again, strict=True):
            if self.shaped(i, g):
                a, b = (np.asarray(k, dtype=np.float64) for k in (g, g2))
                if np.array_equal(a, b, equal_nan=True):
                    fine.append(i)
                elif np.allclose(b, 2 * a):
                    self.say(self.d(i), "accumulated", "added to the last call's: a second call gives twice the first")
                else:
                    self.say(self.d(i), "state", "two equal calls give different gradients: something is kept")
        return fine

    def shaped(self, i: int, g: Any) -> bool:
        """Whether the gradient has the shape of its argument; if not, say what it looks like."""
        a = self.args[i]
        if g is None:
            self.say(self.d(i), "nothing", "not written: None is returned")
            return False
        try:
            g = np.asarray(g)
        except ValueError:  # lists of different lengths
            g = np.asarray(None)
        if g.dtype.kind not in "biuf":
            self.say(self.d(i), "wrong kind", f"expected numbers, got {g.dtype}")
            return False
        if g.shape == a.shape:
            return True
        known = np.nan_to_num(self.right[i]).reshape(self.y.size, -1)
        right = (self.u.ravel() @ known).reshape(a.shape)
        tolerance = RTOL * max(float(np.abs(right).max(initial=0.0)), 1e-300)
        text = f"expected shape {a.shape}, got {g.shape}"
        if g.shape == a.shape[::-1] and close(g.T, right, tolerance):
            self.say(self.d(i), "transpose", f"{text}: it is transposed")
        elif (axes := summed(g, right, tolerance)) is not None:
            over = "axis " + " and ".join(map(str, axes))
            text += f": the sum over {over} is missing, along which {self.names[i]} is broadcast"
            self.say(self.d(i), "broadcast", text)
        elif g.size == a.size and close(g.reshape(a.shape), right, tolerance):
            self.say(self.d(i), "wrong shape", f"{text}: the numbers are right, the axes of length 1 are not")
        else:
            other = [j for j in self.where if j != i and self.args[j].shape == g.shape]
            hint = f", which is {self.names[other[0]]}'s: is the order right?" if other else ""
            self.say(self.d(i), "swapped" if other else "wrong shape", text + hint)
        return False

    def rows(self, shown: Sequence[int]) -> dict[int, Values]:
        """{argument: (*y.shape, *a.shape)}, by a unit cotangent for each output; and whether backward is linear."""
        if not shown:
            return {}
        every = {i: np.empty((self.y.size, self.args[i].size)) for i in shown}
        for k in range(self.y.size):
            unit = np.zeros(self.y.size)
            unit[k] = 1.0
            got = dict(zip(self.where, self.gradients(unit.reshape(self.y.shape), self.args)[0], strict=True))
            for i in shown:
                every[i][k] = np.asarray(got[i], dtype=np.float64).ravel()
        once = dict(zip(self.where, self.gradients(self.u, self.args)[0], strict=True))
        for i, matrix in every.items():
            sum_, all_ = self.u.ravel() @ matrix, np.asarray(once[i], dtype=np.float64).ravel()
            if np.any(matrix) and np.array_equal(np.vstack([matrix, all_]), np.tile(all_, (len(matrix) + 1, 1))):
                self.say(
                    self.d(i), "not linear", "the same for every u: the gradient that comes from above is forgotten"
                )
            elif np.all(np.isfinite(matrix)) and not np.allclose(
                sum_, all_, rtol=1e-6, atol=1e-6 * np.abs(matrix).max()
            ):
                self.say(self.d(i), "not linear", "not linear in u: that for u + u' is not the sum of the two")
        return {i: matrix.reshape(*self.y.shape, *self.args[i].shape) for i, matrix in every.items()}

    # ------------------------------------------------------------------------------------------ the verdict

    def tolerance(self, i: int) -> float:
        largest = float(np.nanmax(np.abs(self.right[i]), initial=0.0))
        scale = float(np.abs(self.args[i]).max(initial=0.0)) or 1.0
        return RTOL * largest + 1e-9 * float(np.abs(self.y).max(initial=0.0)) / scale

    def judge(self, i: int, got: Mapping[int, Values]) -> None:
        """Say what is wrong with one gradient, if anything."""
        g, right, tolerance = got[i], self.right[i], self.tolerance(i)
        if close(g, right, tolerance) or any(f.where == self.d(i) and f.cause == "not linear" for f in self.findings):
            return
        for text, wrong in self.suspects.items():
            if self.same(i, wrong):
                return self.say(self.d(i), text, f"it looks like this: {text}")
        said = explain(g, right, tolerance, self.sizes, self.y.ndim)
        said = said or self.swapped(i, g) or self.elsewhere(i, g) or scaled(g, right, tolerance, self.y.shape)
        said = said or self.elsewhere(i, g, forgotten=True)
        self.say(self.d(i), *(said or ("unnamed", differs(g, np.where(np.isnan(right), g, right)))))
        return None

    def same(self, i: int, wrong: Callable[..., Any]) -> bool:
        """Whether another backward function gives just what was got."""
        a, b = (self.gradient(i, self.u, self.args, pull) for pull in (self.pull, wrong))
        return a.shape == b.shape and close(a, b, RTOL * float(np.abs(b).max(initial=1e-300)))

    def swapped(self, i: int, g: Values) -> tuple[str, str] | None:
        for j in self.where:
            if j != i and self.right[j].shape == g.shape and close(g, self.right[j], self.tolerance(j)):
                return "swapped", f"it is {self.d(j)}: the gradients are returned in another order"
        return None

    def elsewhere(self, i: int, g: Values, forgotten: bool = False) -> tuple[str, str] | None:
        """The derivative at other arguments: at the output for the input, a kernel flipped or transposed."""
        for cause, text, args in self.forgotten() if forgotten else self.variations():
            try:
                right = derivative(self.f, args, i)
            except Exception:
                continue
            if right.shape != g.shape or np.any(np.isnan(right) & ~np.isnan(self.right[i])):
                continue  # on a kink little is known, and what is known fits too easily
            tolerance = RTOL * float(np.nanmax(np.abs(right), initial=1e-300)) + self.tolerance(i)
            if close(g, right, tolerance):
                return cause, text
            if said := multiple(g, right, tolerance, self.sizes):
                return cause, f"{text}, and {said[1].removeprefix('right but for ')}"
        return None

    def variations(self) -> list[tuple[str, str, list[Any]]]:
        found: list[tuple[str, str, list[Any]]] = []

        def add(cause: str, text: str, j: int, other: Values) -> None:
            found.append((cause, text, [*self.args[:j], other, *self.args[j + 1 :]]))

        for j in (j for j, a in enumerate(self.args) if _floating(a)):
            a, name = self.args[j], self.names[j]
            if a.shape == self.y.shape:
                add("at the output", f"the derivative at the output, where {name}, the input, belongs", j, self.y)
            if a.ndim in (3, 4):
                turned = a[::-1, ::-1] if a.ndim == 4 else a[::-1]
                add("flip", f"right for {name} flipped in space: the kernel is flipped", j, turned)
                if a.ndim == 4 and a.shape[2] == a.shape[3]:
                    add("map transposed", f"right for {name} with its channels swapped", j, a.swapaxes(2, 3))
                    add("map transposed", f"right for {name} flipped, channels swapped", j, turned.swapaxes(2, 3))
            if a.ndim >= 2 and a.shape[0] == a.shape[1]:
                add("map transposed", f"right for {name} with axes 0 and 1 swapped", j, a.swapaxes(0, 1))
        return found

    def forgotten(self) -> list[tuple[str, str, list[Any]]]:
        """Arguments of the other sign, or none at all."""
        found = []
        for j in (j for j, a in enumerate(self.args) if _floating(a)):
            a, name = self.args[j], self.names[j]
            for text, other in ((f"-{name} in place of {name}", -a), (f"{name} = 0: {name} is forgotten", 0 * a)):
                found.append(("other argument", f"right for {text}", [*self.args[:j], other, *self.args[j + 1 :]]))
        return found

    # ------------------------------------------------------------------------------------- ties, zeros, dtypes

    def kinks(self) -> None:
        """Where entries of an argument tie or are zero: finite gradients, and no more handed on than there is.

        A shift of all entries keeps their ties, so y may be smooth along it even there; then the entries of the
        gradient must add up to its derivative.
        """
        for i in self.where:
            a = self.args[i]
            if a.ndim < 2:
                continue
            tied = [*self.args[:i], np.round(a / (float(np.std(a)) or 1.0)), *self.args[i + 1 :]]
            middle, above, below = (self.f([*tied[:i], tied[i] + s * H, *tied[i + 1 :]]) for s in (0, 1, -1))
            if middle.shape != self.y.shape or not np.all(np.isfinite([middle, above, below])):
                continue
            for j, g in zip(self.where, self.gradients(self.u, tied)[0]):
                if not np.all(np.isfinite(g)):
                    text = f"not finite where entries of {self.names[i]} are 0 or equal, and y is finite"
                    return self.say(self.d(j), "nan", text)
            smooth = np.abs(above + below - 2 * middle) / H < 1e-2
            got = float(self.gradient(i, self.u * smooth, tied).sum())
            want = float(np.sum(self.u * smooth * (above - below)) / (2 * H))
            if abs(got - want) > 1e-5 * (1 + np.abs(self.u).sum() * max(1.0, float(np.abs(middle).max()))):
                text = f"where entries of {self.names[i]} are equal, gradients add up to {got:.4g}, not {want:.4g}"
                return self.say(self.d(i), "ties", f"{text}: ties are sent to all, or to none")
        return None

    def dtypes(self) -> None:
        """float32 arguments give a float32 output and float32 gradients."""
        args = [a.astype(np.float32) if _floating(a) else a for a in self.args]
        given = [("forward", self.value(*_copies(args))[0])]
        given += [(self.d(i), g) for i, g in zip(self.where, self.gradients(self.u.astype(np.float32), args)[0])]
        for where, a in given:
            if np.asarray(a).dtype != np.float32:
                text = f"float32 arguments give {np.asarray(a).dtype}: make arrays with dtype=x.dtype"
                return self.say(where, "wrong dtype", text)
        return None
