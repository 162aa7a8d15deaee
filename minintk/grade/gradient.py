"""Compare a backward function with finite differences of its forward function, and describe each mistake.

The derivative of the output y with respect to an argument `a` is a matrix.  `backward`, called with unit cotangents,
gives the rows of this matrix.  Finite differences of `forward`, in float64, give its columns:

    dy/da_i = (y(a + h e_i) - y(a - h e_i)) / 2h,    h = 2^-17 times the root mean square of a

Rounding errors are eps |y| / h, or 3e-11 |y| if a has entries of size 1.  The truncation error is h^2/6 times a third
derivative.  The tolerance, 1e-6 max |dy/da| + 1e-9 max |y| / max |a|, usually far exceeds both.  Kinks are skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from minintk.grade import worker
from minintk.grade.compare import Diagnosis, Finding, differs
from minintk.grade.suspects import Said, Values, close, dimensions, explain, like, margin, misshapen, scaled, terms

Watched = Callable[..., tuple[Any, list[int]]]
"""A function that returns a result and the positions of the arguments that were changed in place."""

H, LARGEST = 2.0**-17, 4096


def check_gradient(
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    args: Sequence[Any],
    *,
    wrt: Sequence[int] | None = None,
    hard: bool = True,
    dtype: bool = True,
) -> Diagnosis:
    """Check that backward returns the gradients of <u, forward(*args)>, where u is a cotangent, and explain mistakes.

    If forward(*args) returns y, backward(u, *args) returns a gradient for each argument (None for arguments that are
    not floating-point arrays) or a dict {"W": ...} or {"dW": ...}.  If forward(*args) returns (y, cache), the call is
    backward(u, cache).
    args : small arrays with a few entries per axis.  If all axes differ in length, a transpose is detected.
    wrt : positions of the arguments to check.  Defaults to all floating-point arrays.  hard : True to include ties and
    zeros.  dtype : True if float32 inputs must give float32 results.  Raises TypeError unless forward and backward are
    functions, and ValueError if no array is floating-point or if y and the `wrt` arrays together exceed 4096 entries.

    >>> def dense(x, W, b): return x @ W + b
    >>> def backward(u, x, W, b): return u @ W.T, x.T @ u, u.mean(axis=0)
    >>> rng = np.random.default_rng(0)
    >>> args = rng.standard_normal((5, 3)), rng.standard_normal((3, 4)), rng.standard_normal(4)
    >>> print(check_gradient(dense, backward, args))
    db: right but for a factor 0.2 = 1/N: a mean where a sum belongs
    """
    if not callable(forward) or not callable(backward):
        raise TypeError(f"check_gradient expects two functions, got {forward!r} and {backward!r}")
    return check_pair(
        lambda *a: worker.output(forward, a), lambda u, *a: worker.pull(forward, backward, u, a), args,
        worker.parameters(forward), wrt=wrt, hard=hard, dtype=dtype,
    )  # fmt: skip


def check_pair(
    value: Watched,
    pull: Watched,
    args: Sequence[Any],
    names: Sequence[str],
    *,
    wrt: Sequence[int] | None = None,
    hard: bool = True,
    dtype: bool = True,
    numbers: Mapping[str, float] | None = None,
    own: Watched | None = None,
    large: bool = False,
) -> Diagnosis:
    """Check gradients as `check_gradient` does, for functions that run elsewhere, e.g. in a student's process.

    value(*args) returns (y, changed), and pull(u, *args) returns (gradients, changed); `changed` lists the positions of
    arguments changed in place (u: -1).  names : the arguments' names, if known.  numbers : further values that a wrong
    factor or its inverse can have.  own : the function to check for dtype and in-place changes, if `value` is not the
    submission's.  large : True to compare only slopes along random directions; args can then have any size.
    """
    double = [a.astype(np.float64) if floating(a) else a for a in args]
    where = [i for i, a in enumerate(double) if floating(a)] if wrt is None else list(wrt)
    if not where or any(not floating(double[i]) for i in where):
        raise ValueError("args expects at least one array of floating-point numbers, which its gradient is taken in")
    names = names if len(names) == len(args) else [f"arg{i}" for i in range(len(args))]
    check = _Check(value, pull, double, {-1: "u"} | dict(enumerate(names)), where, own or value)
    if large:
        check.directions()
    else:
        check.run(hard, numbers or {}, dtype=dtype)
    return Diagnosis(tuple(dict.fromkeys(check.findings)))


def derivative(f: Callable[[Sequence[Any]], Values], args: Sequence[Any], i: int) -> Values:
    """Return dy/da : (*y.shape, *a.shape) for y = f(args), a = args[i], by finite differences, with NaN at kinks."""
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


def floating(a: Any) -> bool:
    """Return True if `a` is an array of floating-point numbers."""
    return isinstance(a, np.ndarray) and a.dtype.kind == "f"


def _copies(args: Sequence[Any]) -> list[Any]:
    return [np.array(a) if floating(a) else a for a in args]


class _Check:
    """A check in progress: its functions, arguments and findings."""

    def __init__(
        self, value: Watched, pull: Watched, args: list[Any], names: dict[int, str], where: list[int], own: Watched
    ) -> None:
        self.value, self.pull, self.args, self.names, self.where, self.own = value, pull, args, names, where, own
        self.arrays: list[tuple[int, Values]] = [(j, a) for j, a in enumerate(args) if floating(a)]
        self.findings: list[Finding] = []

    def run(self, hard: bool, numbers: Mapping[str, float], *, dtype: bool) -> None:
        if not self.forward():
            return
        size = self.y.size + sum(self.args[i].size for i in self.where)
        if size > LARGEST:
            raise ValueError(f"args and output have {size} entries in all; use fewer, at most {LARGEST}")
        given = {self.names[i]: a for i, a in enumerate(self.args) if isinstance(a, int | float)}
        shapes = {self.names[i]: self.args[i].shape for i in self.where}
        self.sizes = dimensions({"y": self.y.shape or next(iter(shapes.values()))} | shapes, given | dict(numbers))
        self.u = np.asarray(np.random.default_rng(0).standard_normal(self.y.shape))
        self.right = {i: derivative(self.f, self.args, i) for i in self.where}
        for i, g in self.linear(self.first()).items():
            if not close(g, self.right[i], self.tolerance(i)):
                self.say(i, *next(filter(None, self.guesses(i, g))))
        if hard and not self.findings:
            self.kinks()
        if dtype and not self.findings:
            self.dtypes()

    def directions(self) -> None:
        """Compare the gradients of <u, y> with slopes of <u, y> along random directions.

        Directions are drawn once the gradient is returned, so a submission cannot adapt to them.  Agreement along one
        of three directions is enough, because y can have a kink between the two points of a finite difference.
        """
        rng = np.random.default_rng()
        u = np.asarray(rng.standard_normal(self.f(self.args).shape))
        for i, g in self.gradients(u, self.args)[0].items():
            a = self.args[i]
            if said := misshapen(g, a, self.names[i]):
                self.say(i, *said)
                continue
            h = H * float(np.sqrt(np.mean(a * a)) or 1.0)
            for _ in range(3):
                d = rng.standard_normal(a.shape)
                above, below = (self.f([*self.args[:i], a + s * d, *self.args[i + 1 :]]) for s in (h, -h))
                slope, mine = float(np.sum(u * (above - below))) / (2 * h), float(np.sum(g * d))
                if abs(slope - mine) <= 1e-5 * float(np.sqrt(np.sum(g * g))):
                    break
            else:
                self.say(i, "unnamed", f"along a random direction the slope is {slope:.8g}, the gradient's {mine:.8g}")

    def say(self, where: int | str, cause: str, text: str) -> None:
        self.findings.append(Finding(where if isinstance(where, str) else self.d(where), cause, text))

    def d(self, i: int) -> str:
        return f"d{self.names[i]}" if i >= 0 else "u"

    def forward(self) -> bool:
        """Compute the output y and report its errors; return True if later checks can use y."""
        y, changed = self.value(*_copies(self.args))[0], self.own(*_copies(self.args))[1]
        for i in changed:
            self.say("forward", "in place", f"it changes {self.names[i]} in place: work on a copy")
        if not isinstance(y, np.ndarray | np.floating | float) or np.asarray(y).dtype.kind != "f":
            self.say("forward", "wrong kind", f"expected an array of floating-point numbers, got {type(y).__name__}")
            return False
        self.y = y = np.asarray(y, dtype=np.float64)
        if not np.all(np.isfinite(y)):
            self.say("forward", "nan", f"it gives {y[~np.isfinite(y)][0]} for ordinary arguments")
        elif not np.array_equal(y, self.f(self.args)):
            self.say("forward", "random", "two calls with the same arguments give different results")
        else:
            return True
        return False

    def f(self, args: Sequence[Any]) -> Values:
        return np.asarray(self.value(*_copies(args))[0], dtype=np.float64)

    def gradients(self, u: Values, args: Sequence[Any]) -> tuple[dict[int, Any], list[int]]:
        """Return ({argument: its gradient or None}, positions of the arguments changed in place)."""
        got, changed = self.pull(np.array(u), *_copies(args))
        if isinstance(got, Mapping):
            return {i: got.get(self.names[i], got.get(self.d(i))) for i in self.where}, changed
        got = list(got) if isinstance(got, tuple | list) else [got]
        for given in (self.where, range(len(args)), [j for j, _ in self.arrays]):
            if len(got) == len(given):
                return {i: got[given.index(i)] for i in self.where}, changed
        what = ", ".join(map(self.d, self.where))
        self.say("backward", "wrong number", f"expected {len(self.where)} gradients ({what}), got {len(got)}")
        return {}, changed

    def first(self) -> dict[int, Values]:
        """Call backward twice with u, report errors, and return {argument: gradient} for arguments without errors."""
        got, changed = self.gradients(self.u, self.args)
        for i in changed:
            self.say(i, "in place", f"backward changes {self.names[i]} in place: work on a copy")
        again, _ = self.gradients(self.u, self.args)
        fine = {}
        for i, g in got.items():
            right = (self.u.ravel() @ np.nan_to_num(self.right[i]).reshape(self.y.size, -1)).reshape(self.args[i].shape)
            if said := misshapen(g, right, self.names[i]):
                others = [self.names[j] for j in self.where if j != i and self.args[j].shape == np.shape(g)]
                if others and said[0] == "wrong shape":
                    said = "swapped", f"{said[1]}, which is {others[0]}'s: is the order right?"
                self.say(i, *said)
                continue
            a, b = (np.asarray(k, dtype=np.float64) for k in (g, again[i]))
            if np.array_equal(a, b, equal_nan=True):
                fine[i] = a
            elif np.allclose(b, 2 * a):
                self.say(i, "accumulated", "added to the last call's: a second call gives twice the first")
            else:
                self.say(i, "state", "two equal calls give different gradients: something is kept")
        return fine

    def linear(self, once: Mapping[int, Values]) -> dict[int, Values]:
        """Return {argument: dy/da}, dy/da : (*y.shape, *a.shape), from unit cotangents, for gradients linear in u.

        once : the gradients for the cotangent u.
        """
        units = np.eye(self.y.size).reshape(self.y.size, *self.y.shape) if once else ()
        rows = [self.gradients(unit, self.args)[0] for unit in units]
        found = {}
        for i, g in once.items():
            matrix = np.array([np.asarray(row[i], dtype=np.float64).ravel() for row in rows])
            if np.any(matrix) and np.all(matrix == g.ravel()):
                self.say(i, "not linear", "the same for every u: the gradient that comes from above is forgotten")
            elif np.all(np.isfinite(matrix)) and not np.allclose(
                self.u.ravel() @ matrix, g.ravel(), rtol=1e-6, atol=1e-6 * np.abs(matrix).max()
            ):
                self.say(i, "not linear", "not linear in u: that for u + u' is not the sum of the two")
            else:
                found[i] = matrix.reshape(*self.y.shape, *g.shape)
        return found

    def tolerance(self, i: int) -> float:
        scale = float(np.abs(self.args[i]).max(initial=0.0)) or 1.0
        return margin(self.right[i]) + 1e-9 * float(np.abs(self.y).max(initial=0.0)) / scale

    def guesses(self, i: int, g: Values) -> Iterator[Said | None]:
        """Yield (cause, sentence) for each known mistake, or None if it does not explain g; the last is not None."""
        right, tolerance = self.right[i], self.tolerance(i)
        yield explain(g, right, tolerance, self.sizes, self.y.ndim)
        for j in self.where:
            if j != i and self.right[j].shape == g.shape and close(g, self.right[j], self.tolerance(j)):
                yield "swapped", f"it is {self.d(j)}: the gradients are returned in another order"
        for cause, text, j, a in self.other_arguments():
            yield self.elsewhere(i, g, cause, text, j, a)
        for k, j, a in ((k, j, a) for k in (0, 1) for j, a in self.arrays):
            if j != i and (k or a.shape == self.args[i].shape):  # e.g. the factor of a norm, or the targets of a loss
                text = f"right for {self.names[j]} = {k}: {self.names[j]} is forgotten"
                yield self.elsewhere(i, g, "other argument", text, j, np.full_like(a, k))
        yield terms(g, right, self.args[i], tolerance)
        yield scaled(g, right, tolerance, self.y.shape)
        for j, a in self.arrays:
            name = self.names[j]
            yield self.elsewhere(i, g, "other argument", f"right for -{name} in place of {name}", j, -a)
            yield self.elsewhere(i, g, "other argument", f"right for {name} = 0: {name} is forgotten", j, 0 * a)
        yield "unnamed", differs(g, np.where(np.isnan(right), g, right), self.y.ndim)

    def elsewhere(self, i: int, g: Values, cause: str, text: str, j: int, other: Values) -> Said | None:
        """Return (cause, text) if g is the derivative with `other` as argument j, or a multiple of this derivative."""
        try:
            right = derivative(self.f, [*self.args[:j], other, *self.args[j + 1 :]], i)
        except Exception:
            return None
        if right.shape != g.shape or np.any(np.isnan(right) & ~np.isnan(self.right[i])):
            return None  # unknown entries at a kink would fit anything
        return like(cause, text, g, right, margin(right) + self.tolerance(i), self.sizes)

    def other_arguments(self) -> Iterator[tuple[str, str, int, Values]]:
        """Yield (cause, words, the argument's position, the value that backward might have used instead)."""
        for j, a in self.arrays:
            name = self.names[j]
            if a.shape == self.y.shape:
                yield "at the output", f"the derivative at the output, where {name}, the input, belongs", j, self.y
            if a.ndim in (3, 4):
                turned = a[::-1, ::-1] if a.ndim == 4 else a[::-1]
                yield "flip", f"right for {name} flipped in space: the kernel is flipped", j, turned
                for axis in (0, 1):
                    text = f"right for {name} flipped along axis {axis}"
                    yield "flip", text, j, np.flip(a, axis)
                if a.ndim == 4 and a.shape[2] == a.shape[3]:
                    yield "map transposed", f"right for {name} with its channels swapped", j, a.swapaxes(2, 3)
                    yield "map transposed", f"right for {name} flipped, channels swapped", j, turned.swapaxes(2, 3)
            if a.ndim >= 2 and a.shape[0] == a.shape[1]:
                yield "map transposed", f"right for {name} with axes 0 and 1 swapped", j, a.swapaxes(0, 1)

    def kinks(self) -> None:
        """Check arguments with ties or zeros: gradients must be finite, and add up to the slope along a shift.

        A shift of all entries preserves ties, so y can be smooth along it even at ties.  The entries of the gradient
        must then add up to the derivative along the shift.
        """
        for i, a in ((i, self.args[i]) for i in self.where if self.args[i].ndim > 1):
            tied = [*self.args[:i], np.round(a / (float(np.std(a)) or 1.0)), *self.args[i + 1 :]]
            middle, above, below = (self.f([*tied[:i], tied[i] + s * H, *tied[i + 1 :]]) for s in (0, 1, -1))
            if middle.shape != self.y.shape or not np.all(np.isfinite([middle, above, below])):
                continue
            for j, g in self.gradients(self.u, tied)[0].items():
                if not np.all(np.isfinite(g)):
                    text = f"not finite where entries of {self.names[i]} are 0 or equal, and y is finite"
                    return self.say(j, "nan", text)
            smooth = np.abs(above + below - 2 * middle) / H < 1e-2
            got = float(np.sum(self.gradients(self.u * smooth, tied)[0][i]))
            want = float(np.sum(self.u * smooth * (above - below)) / (2 * H))
            if abs(got - want) > 1e-5 * (1 + np.abs(self.u).sum() * max(1.0, float(np.abs(middle).max()))):
                text = f"where entries of {self.names[i]} are equal, gradients add up to {got:.4g}, not {want:.4g}"
                return self.say(i, "ties", f"{text}: ties are sent to all, or to none")
        return None

    def dtypes(self) -> None:
        """Check that outputs and gradients are float32 for float32 arguments, and float64 for float64 arguments."""
        for want in (np.float32, np.float64):
            args = [a.astype(want) if floating(a) else a for a in self.args]
            gradients = self.gradients(self.u.astype(want), args)[0]
            given: list[tuple[int | str, Any]] = [("forward", self.own(*_copies(args))[0]), *gradients.items()]
            for where, a in given:
                if (kind := np.asarray(a).dtype) != want:
                    text = f"{np.dtype(want)} arguments give {kind}: keep x.dtype in new arrays, and in NumPy's factors"
                    return self.say(where, "wrong dtype", text)
        return None
