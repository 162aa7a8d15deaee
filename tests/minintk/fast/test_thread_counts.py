"""One, two and four threads: the same bits from fully connected kernels, the same up to roundings from all else."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import analytic as an
import minintk as mn

Array = Any


def results(dtype: Any) -> tuple[list[Array], list[Array]]:
    """Of fully connected kernels; of image kernels, an empirical NTK and weights after ten steps."""
    rng = np.random.default_rng(0)
    rows, images, y = (rng.standard_normal(s).astype(dtype) for s in ((150, 20), (10, 6, 6, 2), (10, 2)))
    hidden = [mn.Dense(8, b_std=0.1), mn.ReLU(), mn.Dense(8), mn.Erf()]
    exact = list(an.kernel(mn.Sequential(*hidden, mn.Dense(1))).both(rows))
    conv = mn.Sequential(mn.Conv2d(8), mn.Erf(), mn.AvgPool(2), mn.Conv2d(8), mn.ReLU(), mn.Flatten(), mn.Dense(2))
    net = mn.Network(conv, (6, 6, 2))
    theta = net.init(np.random.default_rng(0), dtype=dtype)
    *_, last = mn.train(net, theta, images, y, loss=mn.mse, optimizer=mn.SGD(lr=0.1), steps=10)
    return exact, [*an.kernel(conv).both(images), mn.ntk(net, theta, images), last.theta]


@pytest.mark.parametrize(
    ("dtype", "counts"),
    [(np.float32, (1, 2)), *(pytest.param(d, (1, 2, 4), marks=pytest.mark.slow) for d in (np.float64, np.float32))],
)
def test_results_do_not_depend_on_the_number_of_threads(
    dtype: Any, counts: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for count in counts:
        for name, module in list(sys.modules.items()):
            if name.startswith(("minintk", "analytic")) and hasattr(module, "cores"):
                monkeypatch.setattr(module, "cores", lambda count=count: count)
        with threadpool_limits(count):
            found.append(results(dtype))
    for exact, rounded in found[1:]:
        for one, other in zip(exact, found[0][0], strict=True):
            assert one.tobytes() == other.tobytes()
        for one, other in zip(rounded, found[0][1], strict=True):
            assert np.max(np.abs(one - other)) <= 50 * np.finfo(dtype).eps * np.max(np.abs(other))
