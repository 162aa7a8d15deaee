"""Test that random fully connected and convolutional networks give the same results with and without fast paths."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import minintk as mn
from minintk.fast.accelerate import shut
from minintk.layers.contract import bind
from minintk.layers.dense import BoundDense
from minintk.models.network import as_written
from minintk.testing import assert_close, roundings
from minintk.threads import single_threaded_blas
from minintk.thresholds import THRESHOLDS
from tests.kit.small_is_large import small_is_large
from tests.kit.strategies import Case, cases, convolutional, networks

ROOT = Path(__file__).resolve().parents[3]


def both(net: mn.Network) -> tuple[mn.Network, mn.Network]:
    """Return two copies of the network: one without and one with fast paths."""
    with shut():
        plain = mn.Network(net.spec, net.input_shape, net.parametrization)
    assert plain.sweeps is plain.layers is plain.kernels
    fast = mn.Network(net.spec, net.input_shape, net.parametrization)
    assert fast.kernels is not fast.layers
    return plain, fast


def check_door(case: Case) -> None:
    """Check that f, J v, J' u and the kernels of the fast network equal the plain network's up to rounding."""
    with small_is_large(), single_threaded_blas():
        plain, fast = both(case.net)
        f, J = plain.linearize(case.theta, case.x)
        g, K = fast.linearize(case.theta, case.x)
        v, u = (np.asarray(case.rng.standard_normal(a.shape)) for a in (case.theta, f))
        m = 20 * roundings(plain, case.theta, case.x)
        size = float(np.sqrt((J.dense() ** 2).sum())) + 1e-300
        assert_close("f", g, f, m * (float(np.abs(f).max(initial=0)) + size * float(np.abs(case.theta).max())))
        assert_close("J v", K.jvp(v), J.jvp(v), m * size * float(np.sqrt((v**2).sum())))
        assert_close("J' u", K.vjp(u), J.vjp(u), m * size * float(np.sqrt((u**2).sum())))
        if not plain.coupled:
            assert_close("ntk", mn.ntk(fast, case.theta, case.x), mn.ntk(plain, case.theta, case.x), m * size**2)
            x2 = case.x[:1]
            want = mn.ntk_full(plain, case.theta, case.x, x2)
            assert_close("ntk_full", mn.ntk_full(fast, case.theta, case.x, x2), want, m * size**2)
            assert_close("gram", K.gram(), J.gram(), m * size**2)


@settings(max_examples=60)
@given(cases(networks()))
def test_fully_connected(case: Case) -> None:
    check_door(case)


@settings(max_examples=100)
@given(cases(convolutional()))
def test_convolutional(case: Case) -> None:
    check_door(case)


@pytest.mark.parametrize("what", ["patches", "gathered", "shares"])
def test_a_wrong_fast_path_is_refused(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`check_door` fails if patches are shifted by one entry, `Gather` flips the weights, or examples are omitted."""
    from minintk.fast.gather import Gather
    from minintk.fast.patches import Patches
    from minintk.fast.split_batch import SplitBatchJacobian

    spec = mn.Sequential(mn.Conv2d(3, 3), mn.ReLU(), mn.Conv2d(3, 3, stride=2), mn.Flatten())
    net = mn.Network(mn.Sequential(*spec.layers, mn.Dense(2)), (6, 6, 2))
    rng = np.random.default_rng(0)
    case = Case(net, net.init(rng), rng.standard_normal((4, 6, 6, 2)), np.zeros((4, 2)), rng)
    check_door(case)
    if what == "patches":
        read = Patches.read
        monkeypatch.setattr(Patches, "read", lambda self, x, *out: np.roll(read(self, x, *out), 1, axis=-1))
    elif what == "gathered":
        turned = Gather.turned
        monkeypatch.setattr(Gather, "turned", lambda self, W: turned(self, W[..., ::-1, :, :, :]))
    else:

        def forgetful(self: Any, u: Any, dw: Any) -> Any:
            return [J.vjp(u[..., at, :], dw) for J, at in zip(self.parts, self.shares, strict=True)][-1]

        monkeypatch.setattr(SplitBatchJacobian, "vjp", forgetful)
    with pytest.raises((AssertionError, ValueError)):
        check_door(case)


def test_a_small_batch_meets_a_large_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only large batches use the fast layers. Kernels between a large and a small batch are computed layer by layer."""
    from minintk.models.jacobian import Jacobian

    net = mn.Network(mn.Sequential(mn.Dense(8), mn.ReLU(), mn.Dense(3)), (5,))
    with shut():
        plain = mn.Network(net.spec, net.input_shape)
    rng = np.random.default_rng(0)
    theta, x = net.init(rng), rng.standard_normal((20, 5))
    monkeypatch.setattr(THRESHOLDS, "plain", 10 * net.size)
    monkeypatch.setattr(Jacobian, "contract", None)  # `contract` takes a sweep per row and must not be called
    for few, many in ((x[:2], x), (x, x[:2])):
        np.testing.assert_allclose(mn.ntk_full(net, theta, few, many), mn.ntk_full(plain, theta, few, many), rtol=1e-9)
    J = net.linearize(theta, x)[1]
    for other in (net.linearize(theta, x[:2])[1], net.jacobian(theta, x)):  # net.jacobian has merged layers
        found, want = J.gram(other), np.einsum("ncp,mdp->ncmd", J.dense(), other.dense())
        np.testing.assert_allclose(found, want, rtol=1e-9, atol=1e-12)


def test_the_door_is_asked_once() -> None:
    asked: list[int] = []

    def spy(layers: Any, spec: Any, shape: Any, coupled: bool) -> Any:
        asked.append(len(layers.layers))
        return as_written(layers, spec, shape, coupled)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mn.Network, "speed", staticmethod(spy))
        net = mn.Network(mn.Sequential(mn.Dense(3), mn.ReLU(), mn.Dense(1)), (2,))
        theta = net.init(np.random.default_rng(0))
        net(theta, np.eye(2))
        mn.ntk(net, theta, np.eye(2))
    assert asked == [3]


def imported(path: Path) -> set[str]:
    """Return the modules that a file imports."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{a.name}" for a in node.names}
        elif isinstance(node, ast.Import):
            names |= {a.name for a in node.names}
    return names


READING_HOUSE = ("minintk/spec", "minintk/layers", "minintk/models", "analytic/textbook.py")


def test_the_reading_house_does_not_import_the_engine_room() -> None:
    for room in READING_HOUSE:
        path = ROOT / room
        for file in [path] if path.suffix else sorted(path.rglob("*.py")):
            assert not {name for name in imported(file) if name.startswith("minintk.fast")}, file
    assert "minintk.fast" in (ROOT / "minintk/doors.py").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Doubled(mn.Dense):
    """A user-defined layer that doubles the output of Dense."""


class BoundDoubled(BoundDense):
    """A bound layer that overrides the forward pass of BoundDense."""

    def __call__(self, w: Any, x: Any) -> Any:
        y, J = super().__call__(w, x)
        return 2 * y, J


def test_a_subclass_of_a_layer_of_ours_keeps_its_own_methods() -> None:
    """Fast layers replace only layers of the library's own classes, not of their subclasses."""

    @bind.register
    def _(layer: Doubled, site: Any, parametrization: Any, name: str) -> BoundDoubled:
        plain: Any = bind.dispatch(mn.Dense)(layer, site, parametrization, name)
        return BoundDoubled(plain.parameters)

    x = np.ones((3, 2))
    net, doubled = (mn.Network(mn.Sequential(kind(4), mn.ReLU(), mn.Dense(1)), (2,)) for kind in (mn.Dense, Doubled))
    theta = net.init(np.random.default_rng(0))
    np.testing.assert_allclose(doubled(theta, x), 2 * net(theta, x), rtol=1e-14)
