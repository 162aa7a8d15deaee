"""A layer's jvp, vjp and gram one by one: which of them is wrong, in which tensor, and what it looks like.

`minintk.testing.check_layer` asks here when a law is broken: its laws tie jvp, vjp and gram together, and so cannot
tell which of them is at fault; differences of the layer's output can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from minintk.grade.compare import differs
from minintk.grade.diagnosis import Diagnosis, Finding
from minintk.grade.gradient import check_pair, derivative
from minintk.grade.suspects import RTOL, close, dimensions, explain
from minintk.grade.worker import watched
from minintk.layers.contract import Bound, bind
from minintk.models.network import Network
from minintk.spec.layers import Flatten, Layer, Sequential
from minintk.spec.parametrization import NTK, Parametrization
from minintk.spec.shapes import Site, couples, out_shape

Values = np.ndarray[Any, Any]


def diagnose_layer(layer: Layer, shape: Sequence[int], parametrization: Parametrization | None = None) -> Diagnosis:
    """What is wrong with the layer's jvp, its vjp and its gram, each against differences of its output.

    shape : of one example as it enters the layer.

    >>> import minintk as mn
    >>> diagnose_layer(mn.Dense(4, b_std=0.5), (3,)).passed
    True
    """
    shape, parametrization = tuple(shape), parametrization or NTK()
    bound = bind(layer, Site(shape, first=False, last=False, inputs=True), parametrization, "layer")
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, *shape))
    names = ["x", *(t.name.removeprefix("layer.") for t in bound.tensors)]
    args = [x, *(rng.standard_normal(t.shape) for t in bound.tensors)]
    numbers = {f"the multiplier of {n}": t.row.multiplier for n, t in zip(names[1:], bound.tensors)}
    written = _written(bound, args, names)
    vjp = check_pair(_Forward(bound), _Backward(bound), args, names, float32=False, hard=False, numbers=numbers)
    found = [*_jvp(bound, args, names, numbers), *written.values()]
    others = (f for f in vjp.findings if f.where.removeprefix("d") not in written)
    found += [f if f.where == "forward" else Finding(f"vjp, {f.where}", f.cause, f.text) for f in others]
    if not couples(layer) and bound.tensors and not found:
        found += _gram(layer, shape, parametrization, rng)
    return Diagnosis(tuple(found))


class _Forward:
    """args -> (y, nothing changed)."""

    def __init__(self, bound: Bound) -> None:
        self.bound = bound

    def __call__(self, x: Values, *weights: Values) -> tuple[Any, list[int]]:
        names = [t.name for t in self.bound.tensors]
        y, changed = watched(lambda x, *w: self.bound(dict(zip(names, w)), x)[0], (x, *weights))
        return np.asarray(y), changed


class _Backward:
    """(u, *args) -> (gradients, what was changed)."""

    def __init__(self, bound: Bound, fill: float = 0.0) -> None:
        self.bound, self.fill = bound, fill

    def __call__(self, u: Values, x: Values, *weights: Values) -> tuple[Any, list[int]]:
        w: Any = dict(zip((t.name for t in self.bound.tensors), weights, strict=True))
        _, J = self.bound(w, x)
        given = {name: np.full_like(a, self.fill) for name, a in w.items()}
        dx, changed = watched(lambda u, *_: J.vjp(u, dict(given)), (u, x, *weights))
        return [dx, *(given[t.name] for t in self.bound.tensors)], [i - 1 for i in changed]


def _written(bound: Bound, args: list[Values], names: list[str]) -> dict[str, Finding]:
    """{tensor: what is wrong with how its gradient is written}: the arrays that vjp gets hold 0, then 1."""
    y, _ = _Forward(bound)(*args)
    (zero, _), (one, _) = (_Backward(bound, fill)(np.ones_like(y), *args) for fill in (0.0, 1.0))
    found = {}
    for name, a, b in zip(names[1:], zero[1:], one[1:], strict=True):
        if np.allclose(b - a, 1.0):
            if not np.any(a):
                said = "nothing", "not written: `dw[name] = ...` makes a new array, write `dw[name][...] = ...`"
            else:
                said = "accumulated", "added to what stands in dw: write = and not +="
            found[name] = Finding(f"vjp, d{name}", *said)
    return found


def _jvp(bound: Bound, args: list[Values], names: list[str], numbers: Mapping[str, float]) -> list[Finding]:
    """jvp along each entry of each argument."""
    tensors = [t.name for t in bound.tensors]

    def f(a: Sequence[Values]) -> Values:
        return np.asarray(bound(dict(zip(tensors, a[1:], strict=True)), a[0])[0])

    y, J = bound(dict(zip(tensors, args[1:], strict=True)), args[0])
    sizes = dimensions({"y": y.shape} | {n: a.shape for n, a in zip(names, args, strict=True)}, numbers)
    found = []
    for i, a in enumerate(args):
        got = np.empty((a.size, *y.shape))
        for k in range(a.size):
            d = [np.zeros_like(b) for b in args]
            d[i].flat[k] = 1.0
            got[k] = J.jvp(dict(zip(tensors, d[1:], strict=True)), d[0])
        got = np.moveaxis(got.reshape(*a.shape, *y.shape), range(a.ndim), range(y.ndim, y.ndim + a.ndim))
        right = derivative(f, args, i)
        tolerance = RTOL * float(np.nanmax(np.abs(right), initial=1e-300))
        if not close(got, right, tolerance):
            said = explain(got, right, tolerance, sizes, y.ndim) or ("unnamed", differs(got, np.nan_to_num(right)))
            found.append(Finding(f"jvp, d{names[i]}", *said))
    return found


def _gram(layer: Layer, shape: Any, parametrization: Parametrization, rng: np.random.Generator) -> list[Finding]:
    """gram against J J' of jvp and vjp, which are right by now; which tensor's part is missing."""
    end = [Flatten()] if len(out_shape(layer, shape)) > 1 else []
    net = Network(Sequential(layer, *end), shape, parametrization)
    theta, x = rng.standard_normal(net.size), rng.standard_normal((3, *shape))
    _, J = net.linearize(theta, x)
    got, dense = np.asarray(J.gram()), np.asarray(J.dense())
    parts = {name: dense[..., at] for name, at in net.layout.slices.items()}
    whole = {name: np.einsum("ncp,mdp->ncmd", d, d) for name, d in parts.items()}
    right = sum(whole.values(), np.zeros_like(got))
    tolerance = RTOL * float(np.abs(right).max())
    if close(got, right, tolerance):
        return []
    for name, part in whole.items():
        short = name.rpartition(".")[2]
        if close(got, right - part, tolerance):
            return [Finding("gram", "part missing", f"the part of {short} is missing")]
        if (said := explain(got - (right - part), part, tolerance, {})) and len(whole) > 1:
            return [Finding("gram", said[0], f"the part of {short}: {said[1]}")]
    said = explain(got, right, tolerance, {}) or ("unnamed", differs(got, right))
    return [Finding("gram", *said)]
