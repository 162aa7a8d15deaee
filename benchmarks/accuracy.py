"""Compare each library's infinite-width kernels with 50-digit reference values, on difficult pairs of inputs.

The rows of x : (11, 16) are a vector u, four vectors at angles of .1 to 1e-6 from u, the vector -u, two vectors near
-u, and three random vectors. The error of an entry is |k - k_true| / sqrt(k_true(x, x) k_true(x', x')). The report
contains the largest error for each kind of pair. mpmath computes k_true from the inputs, rounded to float32 or float64.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import cos, sin, sqrt
from pathlib import Path
from typing import Any

import kernels
import numpy as np
from harness import Arrays, Row, Side, SideFailed, Worker

ANGLES = (1e-1, 1e-2, 1e-4, 1e-6)
DEPTHS = (3, 30)
KINDS = ("equal", "nearly parallel", "opposite, nearly opposite", "other")
W_STD, B_STD = 2**0.5, 0.1


def points(dtype: str) -> Arrays:
    """Return x : (11, 16) with rows u, vectors close to u, the vector -u, vectors close to -u, and random vectors."""
    rng = np.random.default_rng(0)
    u, v = np.linalg.qr(rng.standard_normal((16, 2)))[0].T * sqrt(16)
    turned = [u * cos(a) + v * sin(a) for a in ANGLES]
    return {"x": np.stack([u, *turned, -u, -turned[1], -turned[3], *rng.standard_normal((3, 16))]).astype(dtype)}


def kind(i: int, j: int) -> str:
    """Return the entry of KINDS that describes the pair of rows i and j."""
    if i == j:
        return KINDS[0]
    if i >= 8 or j >= 8:
        return KINDS[3]
    return KINDS[1] if (i >= 5) == (j >= 5) else KINDS[2]


def truth(x: Any, depth: int, activation: str) -> dict[str, Any]:
    """Return the NNGP and the NTK of a network with `depth` hidden layers, computed with mpmath at 50 digits.

    Both kernels are object arrays of shape (N, N).
    """
    from mpmath import mp, mpf

    mp.dps = 50
    w2, b2 = mpf(2**0.5) ** 2, mpf(B_STD) ** 2  # these are the floats that the libraries receive
    rows = [[mpf(float(value)) for value in row] for row in x]
    n = len(rows)
    k = [[w2 * mp.fdot(rows[i], rows[j]) / len(rows[0]) + b2 for j in range(n)] for i in range(n)]
    theta = [list(row) for row in k]
    dual = {"relu": _relu, "erf": _erf}[activation]
    for _ in range(depth):
        q = [k[i][i] for i in range(n)]
        for i in range(n):
            for j in range(i, n):
                t, t_dot = dual(mp, q[i], q[j], k[i][j])
                k[i][j] = k[j][i] = w2 * t + b2
                theta[i][j] = theta[j][i] = k[i][j] + w2 * theta[i][j] * t_dot
    return {"nngp": np.array(k, dtype=object), "ntk": np.array(theta, dtype=object)}


def _relu(mp: Any, q1: Any, q2: Any, k: Any) -> tuple[Any, Any]:
    s = mp.sqrt(q1 * q2)
    a = mp.acos(max(min(k / s, mp.mpf(1)), mp.mpf(-1)))
    return s * (mp.sin(a) + (mp.pi - a) * mp.cos(a)) / (2 * mp.pi), (mp.pi - a) / (2 * mp.pi)


def _erf(mp: Any, q1: Any, q2: Any, k: Any) -> tuple[Any, Any]:
    product = (1 + 2 * q1) * (1 + 2 * q2)
    return 2 / mp.pi * mp.asin(2 * k / mp.sqrt(product)), 4 / mp.pi / mp.sqrt(product - 4 * k**2)


@dataclass(frozen=True)
class Errors:
    """One side's largest errors, {"nngp" or "ntk": {kind of pair: error}}, or the reason why the side failed."""

    activation: str
    depth: int
    dtype: str
    side: str
    errors: dict[str, dict[str, float]]
    failed: str | None = None


def _row(activation: str, depth: int, dtype: str) -> Row:
    how: dict[str, Any] = {"depth": depth, "activation": activation, "b_std": B_STD}
    return Row(
        name=f"accuracy, {activation}, {depth} hidden, {dtype}",
        inputs=partial(points, dtype),
        reference=lambda a: truth(a["x"], depth, activation),
        tolerance=1.0,
        sides=(
            Side("minintk", "ours", partial(kernels.ours, **how)),
            Side("neural-tangents", "jax", partial(kernels.neural_tangents, **how), None, kernels.flag(dtype)),
        ),
    )


CASES = [(a, depth, dtype) for dtype in ("float32", "float64") for a in ("relu", "erf") for depth in DEPTHS]
ROWS = {case: _row(*case) for case in CASES}


def measure(environments: list[str], device: str) -> Iterator[Errors]:
    """Yield the errors for each case and each side that runs in these environments."""
    truths = {case: row.reference(row.inputs()) for case, row in ROWS.items()}
    for dtype in ("float32", "float64"):
        for number, first in enumerate(ROWS["relu", DEPTHS[0], dtype].sides):
            if first.environment not in environments:
                continue
            worker = Worker(first.environment, first.settings, threads=1)
            try:
                for case in (case for case in CASES if case[2] == dtype):
                    yield _case(worker, case, ROWS[case].sides[number], device, truths[case])
            finally:
                worker.close()


def _case(worker: Worker, case: tuple[str, int, str], side: Side, device: str, right: Arrays) -> Errors:
    try:
        return Errors(*case, side.name, _errors(_answer(worker, ROWS[case], side, device), right))
    except SideFailed as error:
        return Errors(*case, side.name, {}, str(error))


def _answer(worker: Worker, row: Row, side: Side, device: str) -> Arrays:
    with tempfile.TemporaryDirectory() as folder:
        inputs, answer = Path(folder) / "inputs.npz", Path(folder) / "answer.npz"
        np.savez(inputs, **row.inputs())
        worker.ask(do="answer", row=row.name, side=side.name, device=device, inputs=str(inputs), answer=str(answer))
        return dict(np.load(answer))


def _errors(answer: Arrays, truth: Arrays) -> dict[str, dict[str, float]]:
    from mpmath import mp, mpf

    errors = {}
    for name, right in truth.items():
        n = len(right)
        worst = dict.fromkeys(KINDS, 0.0)
        for i in range(n):
            for j in range(n):
                given = float(answer[name][i, j])
                scale = mp.sqrt(right[i, i] * right[j, j])
                off = float(abs(mpf(given) - right[i, j]) / scale) if given == given else float("inf")
                worst[kind(i, j)] = max(worst[kind(i, j)], off)
        errors[name] = worst
    return errors
