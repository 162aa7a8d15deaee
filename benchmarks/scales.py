"""Measure the rounding errors of kernels for inputs scaled by 1e-300 to 1e300. The output is stored in scales.md.

For each scale s, the inputs are u, v, 0, s u, -s u, s (u + 1e-6 v) and s v, with random u and v. The network has one
hidden layer and no biases. The errors of the NNGP and the NTK are the largest |k - k_true| / sqrt(k_true(x, x)
k_true(x', x')), with k_true from mpmath. A cell contains "refused" if the kernel raises ValueError. The denominator is
at least 1e-38 in float32 and 1e-306 in float64, near the smallest normal number.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

import analytic as an
import minintk as mn

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "oracles"))

SCALES = [
    1e-300,
    1e-160,
    1e-152,
    1e-100,
    1e-40,
    1e-20,
    1e-10,
    1.0,
    1e4,
    1e6,
    1e8,
    1e20,
    1e38,
    1e100,
    1e152,
    1e160,
    1e300,
]


def rows(scale: float, dtype: Any) -> Any:
    """Return the seven inputs, (7, 4), for a scale. Entries that exceed the range of the dtype are infinite."""
    u, v = np.random.default_rng(0).standard_normal((2, 4))
    with np.errstate(over="ignore", under="ignore"):
        return np.array([u, v, 0 * u, scale * u, -scale * u, scale * (u + 1e-6 * v), scale * v]).astype(dtype)


def cell(phi: mn.spec.Layer, scale: float, dtype: Any) -> str:
    """Return the errors of the NNGP and the NTK as text, or "refused", or "-" if an input is infinite."""
    from tests.kit import oracles_kernels
    from tests.kit.oracles_kernels import exact_kernels

    oracles_kernels.DIGITS = 640
    x = rows(scale, dtype)
    if not np.isfinite(x).all():
        return "-"
    spec = mn.Sequential(mn.Dense(8, w_std=1.5), phi, mn.Dense(1, w_std=1.5))
    try:
        got = an.kernel(spec).both(x)
    except ValueError:
        return "refused"
    least = 1e-38 if dtype is np.float32 else 1e-306
    found = []
    for values, half in zip(got, exact_kernels(spec, x), strict=True):
        worst = 0.0
        for i, row in enumerate(half):
            for j, want in enumerate(row, start=i):
                size = max(float((row[0] * half[j][0]) ** 0.5), least)
                worst = max(worst, float(abs(float(values[i, j]) - want)) / size)
        found.append(f"{worst:.0e}")
    return ", ".join(found)


def main() -> None:
    """Print the table of errors, with one line for each scale."""
    columns = [(phi, dtype) for dtype in (np.float64, np.float32) for phi in (mn.ReLU(), mn.Erf(), mn.GELU(), mn.Sin())]
    print("| s | " + " | ".join(f"{type(phi).__name__} {np.dtype(d)}" for phi, d in columns) + " |")
    print("| --- " * (1 + len(columns)) + "|")
    for scale in SCALES:
        print(f"| {scale:.0e} | " + " | ".join(cell(phi, scale, dtype) for phi, dtype in columns) + " |", flush=True)


if __name__ == "__main__":
    main()
