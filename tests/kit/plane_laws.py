"""Define the law that every method of computing planes must satisfy, on random specs and images."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from hypothesis import reject
from hypothesis import strategies as st

import analytic as an
import minintk as mn
from minintk.spec.shapes import out_shape
from tests.kit.image_cases import SPECS

Array = np.ndarray[Any, Any]

By = Callable[[bool], AbstractContextManager[list[int]]]
"""A function that returns a context manager, which forces planes at any size (True) or disables them (False). It yields
a list whose entry 0 counts the computations."""


KINKED = mn.ReLU(), mn.ReLU(), mn.LeakyReLU(0.2), mn.Abs()
SMOOTH = mn.Erf(), mn.GELU(), mn.Sin(1.0, 0.8, 0.3), mn.Gaussian(1.0, -0.3), mn.Exp(0.5, 0.3), mn.RectifiedMonomial(2)


@st.composite
def plane_cases(draw: st.DrawFn, phis: tuple[mn.spec.Layer, ...] = KINKED + SMOOTH) -> tuple[mn.Sequential, Array]:
    """Draw a spec whose first layers can be computed offset by offset, and three images.

    Some images are equal, opposite or close to each other, or constant.
    """
    shape, pick, some = (
        draw(st.sampled_from([(4, 5, 2), (6, 3, 2), (1, 7, 2), (9, 8, 3)])),
        st.sampled_from,
        st.booleans,
    )

    def window(padding: Any = "same") -> mn.spec.Layer:
        sizes = {"same": [(1, 1), (3, 3), (3, 2), (1, 5)], "valid": [(1, 3), (1, 2)]}
        kernel = draw(pick(sizes.get(padding, [(2, 2)])))
        how: Any = {"w_std": draw(pick([0.7, 2**0.5])), "b_std": draw(pick([0.0, 0.3]))}
        return mn.Conv2d(5, kernel, padding=padding, **how)

    def phi() -> mn.spec.Layer:
        return draw(pick(phis))

    layers: list[mn.spec.Layer] = [window(draw(pick(["same", "valid", ((1, 0), (0, 1))]))), phi()]
    layers[1:1] = [mn.LayerNorm()] if draw(some()) else []
    for _ in range(draw(st.integers(0, 2))):
        if draw(some()):
            layers += [window(), window(), phi()]
        else:
            shortcut = window() if draw(some()) else mn.Identity()
            layers += [window(), mn.Residual(mn.Sequential(phi(), window(), phi(), window()), shortcut=shortcut), phi()]
    deep = [mn.Dense(3, b_std=0.1), phi()] if draw(some()) else []
    ends: list[list[mn.spec.Layer]] = [
        [mn.Flatten()],
        [mn.GlobalAvgPool(), *deep],
        [mn.AvgPool(2, stride=1, padding="same", normalize_edges=draw(some())), mn.Flatten(), *deep],
        [mn.AvgPool((1, 2), stride=(1, draw(pick([1, 2])))), mn.GlobalAvgPool(), *deep],
        [mn.AvgPool((1, 2), padding="same"), window(), phi(), mn.GlobalAvgPool()],
        [mn.AvgPool(2, padding="same", normalize_edges=draw(some())), window(), phi(), mn.GlobalAvgPool()],
        [mn.Conv2d(5, (1, 3), stride=(1, 2)), phi(), mn.GlobalAvgPool()],
    ]
    layers += draw(pick(ends))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = rng.standard_normal((3, *shape)) + 0.3  # keeps averages over all pixels well above rounding errors
    x[1] = draw(pick([1.0, -1.0, 1 + 1e-9])) * x[0] if draw(some()) else x[1]
    x[2] = draw(pick([0.0, 1.0])) if draw(some()) else x[2]
    spec = mn.Sequential(*layers, mn.Dense(1))
    try:
        out_shape(spec, shape)
    except ValueError:  # a window does not fit into the grid left by a layer without padding
        reject()
    return spec, x


def law_planes(case: tuple[mn.Sequential, Array], by: By) -> None:
    """Check that kernels computed offset by offset equal those from NumPy's passes.

    The NTK's bound in float64 is 1e-10: NumPy's passes give an angle of 0 only to this precision after erf and sums.
    """
    spec, x = case
    kernel = an.kernel(spec)
    for dtype, *bounds, repeat in ("float64", 1e-13, 1e-10, 1e-12), ("float32", 1e-6, 1e-6, 1e-5):
        with by(False):
            try:
                plain = kernel.both(x.astype(dtype).astype("float64"))
            except ValueError:  # after relu^2 and exp, a variance exceeds 1e300
                reject()
        if max(np.abs(k).max() for k in plain) > 1e30:  # float32 may overflow inside
            reject()
        with by(True) as asked:
            got, nngp, block = (
                kernel.both(x.astype(dtype)),
                kernel.nngp(x.astype(dtype)),
                kernel.ntk(x.astype(dtype)[:2], x.astype(dtype)[1:]),
            )
        assert asked[0] > 0
        np.testing.assert_array_equal(got.nngp, nngp)
        np.testing.assert_array_equal(got.ntk, got.ntk.T)
        roots = [np.sqrt(np.diagonal(k)) for k in plain]
        for a, b, root, bound in zip(got, plain, roots, bounds, strict=True):
            assert np.abs(a - b).max() <= bound * root.max() ** 2, (
                f"{dtype}: {np.abs(a - b).max() / root.max() ** 2:.1e}"
            )
        rounding = np.finfo(dtype).eps * np.abs(plain.ntk).max()  # small images beside a large one lose digits
        np.testing.assert_allclose(block, got.ntk[:2, 1:], rtol=repeat, atol=rounding)


GRID = mn.Conv2d(4, 3, b_std=0.2)
ENDS: dict[str, tuple[mn.spec.Layer, ...]] = {
    "windows of one pixel": (mn.Conv2d(4, 1, b_std=0.1), mn.ReLU(), mn.GlobalAvgPool(), mn.Dense(1)),
    "a sum whose shortcut alone has weights": (
        mn.Residual(mn.Identity(), shortcut=mn.Conv2d(2, 3, b_std=0.2)),
        *(GRID, mn.ReLU(), mn.GlobalAvgPool(), mn.Dense(1)),
    ),
    "sums in sums": (
        *(GRID, mn.Residual(mn.Sequential(mn.ReLU(), GRID, mn.Residual(mn.Sequential(mn.ReLU(), GRID))))),
        mn.Residual(mn.Sequential(mn.ReLU(), GRID), shortcut=mn.Residual(mn.Sequential(mn.Abs(), GRID))),
        *(mn.ReLU(), mn.GlobalAvgPool(), mn.Dense(1)),
    ),
    "linear": (GRID, GRID, mn.LeakyReLU(1.0), GRID, mn.ReLU(), mn.Flatten(), mn.Dense(1)),
    "window of the grid's size": (GRID, mn.ReLU(), mn.AvgPool((4, 5)), mn.Flatten(), mn.Dense(1)),
    "the same, moved": (GRID, mn.ReLU(), mn.AvgPool((4, 5), stride=9, padding=1), mn.Flatten(), mn.Dense(1)),
    "a grid after it": (GRID, mn.ReLU(), mn.AvgPool((4, 5)), GRID, mn.ReLU(), mn.Flatten(), mn.Dense(1)),
}

POOLED = mn.Sequential(GRID, mn.ReLU(), mn.AvgPool((2, 1)), GRID, mn.ReLU(), mn.GlobalAvgPool(), mn.Dense(1))
"""A network with pooling windows of two rows. Pooling drops the last row of images with an odd height."""

DEEP = mn.Sequential(SPECS["relu"][0].layers[0], mn.ReLU(), *SPECS["relu"][0].layers)
