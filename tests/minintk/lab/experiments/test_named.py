"""Test that named networks equal those of the zoo, at the usual width and at other widths."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import minintk as mn
from minintk.lab import cli
from minintk.lab.experiments.named import OPTIMIZERS, network, spec_of_width
from minintk.spec import zoo

GREY = (28, 28, 1)

NAMED: dict[str, tuple[tuple[int, ...], int | None, type[mn.Parametrization], Callable[[Any], mn.spec.Layer]]] = {
    "mlp": (GREY, 512, mn.PyTorch, lambda n: mn.Sequential(mn.Flatten(), *zoo.mlp(2, n, 10, b_std=1.0))),
    "lenet5": (GREY, 1, mn.PyTorch, lambda n: zoo.lenet5(n, 10)),
    "lenet": (GREY, 50, mn.PyTorch, lambda n: zoo.lenet(n, 10)),
    "geiger_cnn": (GREY, 64, mn.Standard, lambda n: zoo.geiger_cnn(n, 10)),
    "myrtle5": ((32, 32, 3), 64, mn.Standard, lambda n: zoo.myrtle(5, n, 10)),
    "wrn-10-2": ((32, 32, 3), None, mn.Standard, lambda n: zoo.wide_resnet(10, 2, 10, channels=n)),
}


@pytest.mark.parametrize("name", NAMED)
def test_a_name_is_a_network_of_the_zoo(name: str) -> None:
    shape, usual, parametrization, spec = NAMED[name]
    for width, wanted in ((None, usual), (3, 3)):
        net, want = network(name, shape, 10, width), mn.Network(spec(wanted), shape, parametrization())
        assert (net.size, net.outputs, net.input_shape) == (want.size, 10, shape)
        assert net.parametrization == want.parametrization
        assert [t.shape for t in net.layout.tensors] == [t.shape for t in want.layout.tensors]


def test_what_is_no_name_is_refused() -> None:
    with pytest.raises(ValueError, match=r"network expects one of .*, got 'lenet6'"):
        network("lenet6", GREY, 10)
    with pytest.raises(ValueError, match="width"):
        network("lenet", GREY, 10, 0)


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize(("name", "weights"), [("mlp", 1), ("cnn", 1), ("resnet", 2)])
def test_networks_of_a_width_have_so_many_layers(name: str, weights: int, depth: int) -> None:
    """MLPs and CNNs have `depth` + 1 layers with weights, and residual networks have 2 `depth` + 2."""
    net = mn.Network(spec_of_width(name, 10, depth)(4), (6, 6, 2))
    hidden = depth if weights == 1 else 1 + 2 * depth
    assert len([t for t in net.layout.tensors if t.name.endswith("W")]) == hidden + 1


def test_usual_rates_are_those_in_the_help_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["coordinate-check", "--help"]) == cli.OK
    said = " ".join(capsys.readouterr().out.split()).partition("learning rate (")[2].partition(")")[0]
    found = re.findall(r"([a-z]+(?: and [a-z]+)?) ([\d.]+)", said)
    rates = {name: float(rate) for names, rate in found for name in names.split(" and ")}
    assert rates == {name: rate for name, (_, rate) in OPTIMIZERS.items()}
