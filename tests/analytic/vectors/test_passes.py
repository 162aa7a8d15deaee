"""Compiled passes against NumPy's: the same text, so the same numbers up to rounding; and all of ours are compiled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import analytic as an
import minintk as mn
from analytic.vectors import plan
from analytic.vectors.closed_forms import ClosedForm
from analytic.vectors.rules import Affine
from analytic.vectors.state import Law, RowState, Step
from minintk.arrays import Array
from minintk.spec.shapes import out_shape

passes = pytest.importorskip("analytic.fast.passes", reason="needs the extra fast")

CLOSED = [
    mn.ReLU(), mn.LeakyReLU(0.1), mn.Abs(), mn.RectifiedMonomial(2), mn.Erf(), mn.GELU(), mn.Sin(), mn.Cos(),
    mn.Sin(1.2, 0.8, 0.4), mn.Exp(1.0, 0.5), mn.Gaussian(),
]  # fmt: skip


def inputs(norms: str, dtype: str) -> tuple[Array, Array]:
    """Rows of one norm, of many, or some of zeros; nearly parallel ones among them."""
    x = np.random.default_rng(0).standard_normal((130, 24))
    x[1], x[2], x[3] = x[0] + 1e-4, -x[0], 2 * x[0]
    if norms == "one":
        x = np.sign(x)
    if norms == "zeros":
        x[5] = 0
    return x[:75].astype(dtype), x[75:].astype(dtype)


@contextmanager
def by_numpy() -> Iterator[None]:
    """No compiled passes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "compiler", lambda: None)
        yield


def apart(kernel: an.Kernel, *x: Array) -> float:
    """How far the passes are from NumPy, relative to sqrt(k(x, x) k(x', x')), in roundings of the inputs' precision."""
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
    """Which parts were compiled and which left to NumPy."""
    found: list[str] = []
    right = passes.recipes

    def recipes(*of: Any) -> Any:
        made = right(*of)
        found.extend("numpy" if part[-1] is None else "compiled" for part in made)
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passes, "recipes", recipes)
        yield found


def clear() -> None:
    """Compile anew."""
    passes.recipes.cache_clear()
    passes.machine_code.cache_clear()


def network(phi: mn.spec.Layer, *more: mn.spec.Layer) -> an.Kernel:
    dense = mn.Dense(8, w_std=1.3, b_std=0.2)
    return an.kernel(mn.Sequential(dense, phi, *more, dense, phi, mn.Dense(1)))


ROUNDINGS = 60
"""Two layers: each of the functions is right to a rounding or two, and they follow one another."""


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("norms", ["one", "many", "zeros"])
@pytest.mark.parametrize("phi", CLOSED, ids=repr)
def test_a_pass_is_what_numpy_does(phi: Any, norms: str, dtype: str) -> None:
    """All activations; x with itself and with others; and all parts are compiled."""
    x, y = inputs(norms, dtype)
    kernel = network(phi)
    with counted() as parts:
        assert apart(kernel, x) < ROUNDINGS
        assert apart(kernel, x, y) < ROUNDINGS
    assert set(parts) == {"compiled"}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "layer",
    [
        mn.Residual(mn.Sequential(mn.ReLU(), mn.Dense(8, b_std=0.3))),
        mn.Sum(mn.Sequential(mn.Erf(), mn.Dense(8)), mn.Dense(8, w_std=0.7)),
        mn.Product(mn.Dense(8), mn.Sequential(mn.ReLU(), mn.Dense(8))),
        mn.Concat(mn.Dense(8), mn.Sequential(mn.ReLU(), mn.Dense(4))),
        mn.Sequential(mn.Dropout(0.3), mn.Dense(8)),
        mn.LayerNorm(),
        mn.Scale(0.3),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_so_are_layers_of_two_parts(layer: Any, dtype: str) -> None:
    dense = mn.Dense(8, b_std=0.2)
    kernel = an.kernel(mn.Sequential(dense, layer, mn.Dense(8, b_std=0.1), mn.ReLU(), mn.Dense(1)))
    for norms in ("many", "zeros"):
        with counted() as parts:
            assert apart(kernel, *inputs(norms, dtype)) < ROUNDINGS
        assert set(parts) == {"compiled"}


def test_one_kernel_alone_is_that_of_both() -> None:
    x, y = inputs("many", "float64")
    for phi in (mn.ReLU(), mn.GELU()):
        kernel = network(phi)
        assert np.array_equal(kernel.nngp(x, y), kernel.both(x, y).nngp)


@pytest.mark.parametrize("shape", [(1, 1), (1, 16), (17, 1), (33, 15), (241, 239), (500, 3)])
def test_every_shape_of_a_tile(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((n, 5)) for n in shape)
    assert apart(network(mn.ReLU()), x, y) < ROUNDINGS
    assert apart(network(mn.Erf()), x) < ROUNDINGS


@pytest.mark.parametrize("shape", [(60_000, 1), (20_000, 17)])
def test_tall_tiles_of_few_columns(shape: tuple[int, int]) -> None:
    """Lines are padded to whole vectors: no more of them than a thread's memory holds."""
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((n, 2)) for n in shape)
    assert apart(network(mn.ReLU()), x, y) < ROUNDINGS


def test_a_quadrature_is_compiled_where_that_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """For millions of pairs, and from a text that is not too long."""
    x, kernel = inputs("many", "float32")[0], network(mn.Tanh())
    monkeypatch.setattr(passes, "NODES", 10**5)
    for most, lines, wanted in ((2**22, 10**4, "numpy"), (0, 10**4, "compiled"), (0, 40, "numpy")):
        monkeypatch.setattr(passes, "MANY_PAIRS", most)
        monkeypatch.setattr(passes, "LINES", lines)
        clear()
        with counted() as parts:
            assert apart(kernel, x) < ROUNDINGS
        assert parts == [wanted, wanted, "compiled"]


@pytest.mark.parametrize("name", ["sqrt", "arcsin", "arctan", "expm1", "divide", "subtract"])
def test_a_wrong_function_is_found_out(name: str) -> None:
    """The negative control: a function off by so much as float32's roundings."""
    right, x = passes.FUNCTIONS[name], inputs("many", "float64")
    clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(passes.FUNCTIONS, name, lambda m, *of: right(m, *of) * (1 + 1e-7))
        assert max(apart(network(phi), *x) for phi in (mn.ReLU(), mn.Erf(), mn.Sin())) > 1e6
    clear()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["sqrt", "arcsin", "arctan", "exp", "expm1"])
def test_functions_of_one_number(name: str, dtype: str) -> None:
    """Against extended precision, over their whole range, its ends and infinity."""
    info = np.finfo(dtype)
    spread = np.concatenate([10.0 ** np.linspace(np.log10(float(info.tiny)), 0, 2000), np.linspace(0, 1, 3001)])
    x = {
        "sqrt": np.concatenate([spread, 1 / spread[spread > 2 * float(info.tiny)], [0.0, float(info.max)]]),
        "arcsin": spread,
        "arctan": np.concatenate([spread, -spread, 1 / spread[spread > 0][1:], [np.inf, -np.inf]]),
        "exp": np.concatenate([-spread, -80 * spread, 80 * spread]),
        "expm1": np.concatenate([-spread, -80 * spread, 20 * spread]),
    }[name].astype(dtype)
    found = called(name, x)
    want = getattr(np, name)(x.astype(np.longdouble))
    size = np.maximum(np.abs(want), float(info.tiny))
    assert float((np.abs(found - want) / size).max()) < 3 * float(info.eps)


def called(name: str, x: Array) -> Array:
    """A function of a pair, by itself."""
    dtype, padded = x.dtype, np.zeros(-(-x.size // 64) * 64, x.dtype)
    padded[: x.size] = x
    code = passes.Code(((name, ("p", ())),), ((4, 0),), (0, 0, 0, 0), dtype)
    rows = np.zeros(128, dtype)
    at = [a.ctypes.data for a in (padded, rows)]
    code.run(at[0], 0, 0, padded.size, 1, padded.size, at[1], 64, 0, 0, at[1])
    return padded[: x.size]


def test_steps_from_elsewhere_are_left_to_numpy() -> None:
    """Their text may depend on what a trace does not see."""
    x, y = inputs("many", "float64")

    class Shifted(ClosedForm):
        def pairs(self, pairs: Any, row: Any) -> None:
            super().pairs(pairs, row)

    plain = an.kernel(mn.Sequential(mn.Dense(8), mn.Sin(), mn.Dense(1)))
    step = next(step for step in plain._program((24,)) if isinstance(step, ClosedForm))
    own = Shifted(**{name: getattr(step, name) for name in step.__dataclass_fields__})
    assert passes.recipe((own,), (tuple, None), 0, 1, np.dtype("float64"), True) is None
    assert apart(plain, x, y) < ROUNDINGS


@dataclass
class Doubling(Step):
    """A user's step that cannot be hashed, nor can its coefficients."""

    factor: float = 2.0

    def law(self, law: Law) -> Law:
        return law

    def rows(self, rows: RowState) -> tuple[RowState, Any]:
        return rows.to(self.factor * rows.q, self.factor * rows.theta), {"rows": rows.q}

    def pairs(self, pairs: Any, row: Any) -> None:
        """Angles stay."""


class Filling(Affine):
    """One of our steps with a part that only arrays know."""

    def tangents(self, pairs: Any, row: Any, *, first: bool = False) -> None:
        pairs.tau.fill(0.25)


class Other(mn.spec.Layer):
    """A user's layer."""

    step: Step


out_shape.register(Other)(lambda layer, shape: shape)
an.lower.register(Other)(lambda layer, site, parametrization: (layer.step,))


@pytest.mark.parametrize("step", [Doubling(), Filling(2.0, 0.0, 1.0, 0.0)])
def test_users_steps_may_be_anything(step: Step) -> None:
    """NumPy runs them, whatever they and their coefficients are; the steps before them are compiled."""
    layer = Other()
    object.__setattr__(layer, "step", step)
    kernel = an.kernel(mn.Sequential(mn.Dense(8), mn.ReLU(), mn.Dense(8), layer, mn.ReLU(), mn.Dense(1)))
    assert apart(kernel, *inputs("many", "float64")) < ROUNDINGS
