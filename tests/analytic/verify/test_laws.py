"""Test that laws of `minintk verify --mup` judge errors of known size correctly, without training any networks."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from analytic.verify import laws
from minintk import spec as s
from minintk.arrays import Host
from minintk.spec import zoo


@pytest.mark.parametrize(
    ("powers", "verdicts"),
    [
        ({2: -1, 4: -2}, ["pass", "pass", "pass"]),
        ({2: -1, 4: -1}, ["fail", "pass", "pass"]),
        ({2: -2, 4: -2}, ["pass", "fail", "undecided"]),
    ],
    ids=["the law", "no better than frozen", "both of second order"],
)
def test_the_order_of_an_error_is_found(
    powers: dict[int, int], verdicts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The true kernel is 0, so the hierarchy's kernels, of sizes n^-1 or n^-2, are also their errors."""
    widths, mlp = list[int](), zoo.mlp

    def narrow(depth: int, width: int, outputs: int, **how: Any) -> s.Sequential:
        widths.append(width)
        return mlp(depth, 1, outputs, **how)

    def flow(model: Any, theta: Host, *data: Host, **how: Any) -> Iterator[Any]:
        yield SimpleNamespace(theta=None)
        yield SimpleNamespace(theta=0 * theta)

    def hierarchy(model: Any, theta: Host, x: Host, *data: Host, order: int, **how: Any) -> Iterator[Any]:
        kernel = np.full((len(theta), len(x), len(x)), float(widths[-1]) ** powers[order])
        yield SimpleNamespace(kernel=np.inf * kernel)
        yield SimpleNamespace(kernel=kernel)

    def ntk_full(model: Any, theta: Host, x: Host) -> Host:
        assert np.all(theta == 0)  # at the end of training
        return np.zeros((len(theta), len(x), len(x)))

    monkeypatch.setattr("minintk.spec.zoo.mlp", narrow)
    monkeypatch.setattr("minintk.hierarchy", hierarchy)
    monkeypatch.setattr(laws, "flow", flow)
    monkeypatch.setattr(laws, "ntk_full", ntk_full)
    assert [finding.verdict for finding in laws.orders(0)] == verdicts
    assert len(widths) == 3
