"""Test the conversion of torch.nn modules to layers, and the errors for unsupported modules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minintk as mn
from tests.kit import torch_standin

Host = np.ndarray[Any, Any]


NN = torch_standin.nn


REFUSED: dict[str, tuple[Any, tuple[int, ...], str]] = {
    "groups": (NN.Sequential(NN.Conv1d(4, 4, 3, groups=2)), (8, 4), "Conv1d at '0' has groups=2; here it is 1"),
    "edges": (
        NN.Sequential(NN.Sequential(NN.Conv2d(1, 1, 3, padding_mode="reflect"))),
        (3, 3, 1),
        r"^replace it, or give spec=.*Conv2d at '0\.0' has padding_mode='reflect'",
    ),
    "unknown": (NN.Sequential(NN.ReLU(), NN.Softmax()), (3,), "^replace it.*Softmax at '1' is none of"),
    "forward": (type("Net", (NN.Sequential,), {"forward": lambda self, x: x})(), (3,), "^give spec=.*Net at 'the top'"),
    "pool": (NN.Sequential(NN.AvgPool2d(2, divisor_override=3)), (8, 8, 4), "divisor_override=3"),
    "ceil": (
        NN.Sequential(NN.AvgPool2d(3, 2, 1, ceil_mode=True)),
        (6, 6, 1),
        r"^take count_include_pad=False: AvgPool2d at '0'",
    ),
    "rows": (NN.Sequential(NN.Linear(4, 3)), (2, 4), r"^put Flatten before it: Linear at '0' acts on the last axis"),
    "norm": (NN.Sequential(NN.LayerNorm(8)), (8, 8, 4), r"here it is over the last axis of \(8, 8, 4\)"),
    "norm of all axes": (NN.Sequential(NN.LayerNorm((8, 4))), (8, 4), r"over the last axis of \(8, 4\)"),
    "tied": (NN.Sequential(*[NN.Linear(3, 3)] * 2), (3,), r"'1\.weight' is '0\.weight' again, the same array"),
    "threshold": (NN.Sequential(NN.Softplus(2.0, 1.0)), (3,), r"Softplus at '0' has threshold=1\.0; here it is 20"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_modules_without_a_counterpart_are_named(name: str) -> None:
    model, shape, message = REFUSED[name]
    with pytest.raises(mn.UnsupportedLayer, match=message):
        mn.lift(model, shape)


def test_padding_that_does_not_count_is_left_out_of_means() -> None:
    model = NN.Sequential(NN.AvgPool2d(3, 2, 1, count_include_pad=False), NN.Flatten(), NN.Linear(6, 2))
    net, _ = mn.lift(model, (5, 4, 1), check=False)
    assert next(iter(net.spec)) == mn.AvgPool(3, stride=2, padding=1, normalize_edges=True)


def test_silu_is_a_swish() -> None:
    nn = torch_standin.nn
    net, _ = mn.lift(nn.Sequential(nn.Linear(3, 4), nn.SiLU()), (3,), check=False)
    assert net.spec == mn.Sequential(mn.Dense(4, b_std=1.0), mn.Swish())
