"""Compare the kernels of vectors from compiled passes with those from NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import analytic as an
import minintk as mn
from analytic.fast import row_formulas
from analytic.vectors import plan
from minintk.arrays import Array

CLOSED = [
    mn.ReLU(), mn.LeakyReLU(0.1), mn.Abs(), mn.RectifiedMonomial(2), mn.Erf(), mn.GELU(), mn.Sin(), mn.Cos(),
    mn.Sin(1.2, 0.8, 0.4), mn.Exp(1.0, 0.5), mn.Gaussian(),
]  # fmt: skip


def inputs(norms: str, dtype: str) -> tuple[Array, Array]:
    """Return two sets of rows, some (nearly) parallel. With "one", norms are equal. With "zeros", a row is zero."""
    x = np.random.default_rng(0).standard_normal((130, 24))
    x[1], x[2], x[3] = x[0] + 1e-4, -x[0], 2 * x[0]
    if norms == "one":
        x = np.sign(x)
    if norms == "zeros":
        x[5] = 0
    return x[:75].astype(dtype), x[75:].astype(dtype)


@contextmanager
def by_numpy() -> Iterator[None]:
    """Compute everything with NumPy while the context is active."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "through", lambda door: None)
        yield


def apart(kernel: an.Kernel, *x: Array) -> float:
    """Return the largest difference between compiled passes and NumPy, in units of eps sqrt(k(x, x) k(x', x'))."""
    with by_numpy():
        plain = kernel.both(*x)
        own = [kernel.diag(side.astype("float64")) for side in (x[0], x[-1])]
    worst = 0.0
    for new, old, left, right in zip(kernel.both(*x), plain, *own, strict=True):
        scale = np.sqrt(np.outer(left, right))
        worst = max(worst, float((np.abs(new - old) / np.where(scale > 0, scale, 1)).max()))
    return worst / float(np.finfo(x[0].dtype).eps)


@contextmanager
def counted() -> Iterator[list[str]]:
    """Yield a list that records "compiled" or "numpy" for each step of a kernel."""
    found: list[str] = []
    right = row_formulas.texts

    def texts(*of: Any) -> Any:
        made = right(*of)
        found.append("numpy" if made is None else "compiled")
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_formulas, "texts", texts)
        yield found


def network(phi: mn.spec.Layer, *more: mn.spec.Layer) -> an.Kernel:
    dense = mn.Dense(8, w_std=1.3, b_std=0.2)
    return an.kernel(mn.Sequential(dense, phi, *more, dense, phi, mn.Dense(1)))


ROUNDINGS = 60
"""The largest difference (see `apart`) that is allowed after two layers. Each function adds one or two roundings.
"""


def law_of_passes(phi: mn.spec.Layer, norms: str, dtype: str) -> None:
    """Compare the kernels k(x) and k(x, y) with NumPy's. Unless a row is zero, all steps must be compiled."""
    x, y = inputs(norms, dtype)
    kernel = network(phi)
    with counted() as steps:
        assert apart(kernel, x) < ROUNDINGS
        assert apart(kernel, x, y) < ROUNDINGS
    if norms != "zeros":
        assert set(steps) == {"compiled"}


TWO_PARTS = [
    mn.Residual(mn.Sequential(mn.ReLU(), mn.Dense(8, b_std=0.3))),
    mn.Sum(mn.Sequential(mn.Erf(), mn.Dense(8)), mn.Dense(8, w_std=0.7)),
    mn.Product(mn.Dense(8), mn.Sequential(mn.ReLU(), mn.Dense(8))),
    mn.Concat(mn.Dense(8), mn.Sequential(mn.ReLU(), mn.Dense(4))),
    mn.Sequential(mn.Dropout(0.3), mn.Dense(8)),
    mn.LayerNorm(),
    mn.Scale(0.3),
]
"""Layers whose parts are compiled and whose results are combined in NumPy."""


def between(layer: mn.spec.Layer) -> an.Kernel:
    """Return the kernel of the network Dense - layer - Dense - ReLU - Dense."""
    dense = mn.Dense(8, b_std=0.2)
    return an.kernel(mn.Sequential(dense, layer, mn.Dense(8, b_std=0.1), mn.ReLU(), mn.Dense(1)))
