"""Test the laws of losses for every subclass of `Loss`. A new loss needs no other test of these laws."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minintk as mn
from minintk.training.checkpoints import identity
from minintk.training.losses import Loss
from tests.kit.every import every

Array = Any
N = 4
SCALE = 3.0

# ------------------------------------------------------------------------------- how to make one, and targets


def make(kind: Any) -> list[Any]:
    """Return a list: the loss with all numerical arguments set to SCALE and, if none is required, the default loss."""
    needed = [f.name for f in fields(kind) if f.init and f.default is MISSING and f.type != "float"]
    assert not needed, f"write how to make a {kind.__name__}: {needed} in test_every_loss.make"
    numbers = {f.name: SCALE for f in fields(kind) if f.init and f.type == "float"}
    return [kind(**numbers), *([kind()] if all(f.default is not MISSING for f in fields(kind)) and numbers else [])]


def targets(loss: Any, rng: np.random.Generator) -> Array:
    """Return valid targets of shape (N, C) for the loss: probabilities, or a column of signs."""
    for y in (rng.dirichlet(np.ones(3), N), rng.choice((-1.0, 1.0), (N, 1))):
        try:
            loss.check(y, y.shape)
        except ValueError:
            continue
        return y
    raise AssertionError(f"write targets for {loss!r} in test_every_loss.targets")


def drawn(loss: Any, seed: int, lead: tuple[int, ...] = ()) -> tuple[Array, Array, np.random.Generator]:
    """Draw outputs f : (*lead, N, C) and targets y, and return (f, y, random generator)."""
    rng = np.random.default_rng(seed)
    y = targets(loss, rng)
    return 3 * rng.standard_normal((*lead, *y.shape)), y, rng


def curved(loss: Any, f: Array, y: Array, v: Array) -> Any:
    """Return (d2L/df2) v, or None for a loss that implements no Hessian."""
    try:
        return loss.hessian(f, y, v)
    except NotImplementedError:
        return None


# ------------------------------------------------------------------------------------------------- the laws


def slope(of: Callable[[Array], Array], f: Array, v: Array, got: Array, law: str) -> None:
    """Check by fourth-order finite differences that `got` is the derivative of `of(f + s v)` in s at s = 0.

    Agreement for one of three step sizes is enough, because f can be near a kink.
    """
    errors = []
    for h in (1e-3, 2e-4, 4e-5):
        a, b, c, d = (of(f + k * h * v) for k in (1, -1, 2, -2))
        errors.append(np.abs((8 * (a - b) - (c - d)) / (12 * h) - got).max())
    assert min(errors) < 1e-9, f"{law}: off by {min(errors):.2g}"


def derivatives(loss: Any, seed: int) -> None:
    """Check that the cotangent is dL/df, and that the Hessian, if any, is the symmetric derivative of the cotangent.

    The attributes `curvature` and `hessian_by_targets` must describe this Hessian correctly.
    """
    f, y, rng = drawn(loss, seed)
    u, v = rng.standard_normal((2, *f.shape))
    slope(lambda f: loss(f, y), f, v, (loss.cotangent(f, y) * v).sum(), "cotangent = dL/df")
    if (hv := curved(loss, f, y, v)) is not None:
        slope(lambda f: loss.cotangent(f, y), f, v, hv, "hessian = d cotangent/df")
        assert (u * hv).sum() == pytest.approx((v * loss.hessian(f, y, u)).sum(), abs=1e-13), "not symmetric"
    if hv is not None and not loss.hessian_by_targets:
        other = loss.hessian(f, targets(loss, rng), v)
        np.testing.assert_allclose(hv, other, rtol=1e-13, err_msg="hessian_by_targets should be True")
    if loss.curvature is not None:
        np.testing.assert_allclose(hv, loss.curvature / N * v, rtol=1e-13, err_msg="curvature is not d2L/df2")


def mean(loss: Any, seed: int) -> None:
    """Check that L >= 0, that L is the mean over examples, and that no example affects another example's cotangent."""
    f, y, _ = drawn(loss, seed)
    one = [slice(n, n + 1) for n in range(N)]
    values = [loss(f[n], y[n]) for n in one]
    assert loss(f, y) == pytest.approx(np.mean(values), rel=1e-13), "L is not the mean over examples"
    rows = np.concatenate([loss.cotangent(f[n], y[n]) for n in one]) / N
    np.testing.assert_allclose(loss.cotangent(f, y), rows, rtol=1e-13, atol=1e-16)
    assert min(values) >= 0, "L < 0"


def members(loss: Any, seed: int) -> None:
    """Check that each member of an ensemble has the loss, cotangent and Hessian of a separate network, bit for bit."""
    f, y, rng = drawn(loss, seed, (5,))
    v = rng.standard_normal(f.shape)
    assert loss(f, y).shape == (5,), "not a loss for each member"
    together, hv = loss.cotangent(f, y), curved(loss, f, y, v)
    for e in range(5):
        assert loss(f, y)[e] == loss(f[e], y), "a member's loss sees the others"
        assert np.array_equal(together[e], loss.cotangent(f[e], y)), "a member's cotangent sees the others"
        assert hv is None or np.array_equal(hv[e], loss.hessian(f[e], y, v[e]))


def precise(loss: Any, seed: int) -> None:
    """Check that float32 inputs give float32 results, that arguments do not change, and that NaN gives NaN."""
    f, y, rng = drawn(loss, seed)
    v = rng.standard_normal(f.shape)
    small = [a.astype(np.float32) for a in (f, y, v)]
    for call, arrays in ((loss, 2), (loss.cotangent, 2), (lambda *a: curved(loss, *a), 3)):
        given = [a.copy() for a in small[:arrays]]
        if (found := call(*given)) is not None:
            assert found.dtype == np.float32, f"float32 gives {found.dtype}"
            assert all(map(np.array_equal, given, small)), "a loss changes its arguments"
            assert not any(np.shares_memory(found, a) for a in given), "a result lies in an argument"
    for k in (0, 1):
        both = [f.copy(), y.copy()]
        both[k][1, 0] = np.nan
        with np.errstate(invalid="ignore"):
            assert np.isnan(loss(*both)), "L of NaN is a number"
            assert np.isnan(loss.cotangent(*both)[1, 0]), "the cotangent of NaN is a number"


def refuses(loss: Any, seed: int) -> None:
    """Check that integers, float16, NaN in targets, wrong shapes and empty batches raise errors.

    Otherwise, f - y of shapes (N, 1) and (N,) would broadcast to (N, N).
    """
    f, y, _ = drawn(loss, seed)
    many, smooth = np.zeros((3, N, 1)), curved(loss, f, y, f) is not None
    for call in (loss, loss.cotangent, *([lambda f, y: loss.hessian(f, y, f)] if smooth else [])):
        for kind in (np.int64, np.uint8, np.float16):
            for pair in ((f.astype(kind), y), (f, y.astype(kind))):
                raises(TypeError, "expects float32 or float64", call, *pair)
        raises(ValueError, "y[:, None]", call, many, np.ones(N))
        for other in (np.ones((1, 1)), np.ones((N, 2))):
            raises(ValueError, "expect one (N, C)", call, many, other)
        raises(ValueError, "at least one example, N >= 1", call, many[:, :0], np.zeros((0, 1)))
    raises(TypeError, "float32 or float64", loss.check, y.astype(int), y.shape)
    raises(ValueError, "y expects shape (N, C)", loss.check, y[:-1], y.shape)
    raises(ValueError, "y[:, None]", loss.check, y[:, 0], (N, 1))
    raises(ValueError, "NaN", loss.check, y * np.nan, y.shape)


def raises(error: type[Exception], words: str, call: Callable[..., Any], *arguments: Any) -> None:
    """Check that the call raises `error`, and that the message contains `words`."""
    try:
        call(*arguments)
    except error as found:
        assert words in str(found), f"{found} lacks {words!r}"  # noqa: PT017
    else:
        raise AssertionError(f"{call} takes {arguments}")


def is_data(loss: Any, seed: int) -> None:
    """An unpickled loss equals the original, a checkpoint detects changed settings, and bad settings raise errors."""
    again = pickle.loads(pickle.dumps(loss))  # noqa: S301
    f, y, _ = drawn(loss, seed)
    assert again == loss
    assert again(f, y) == loss(f, y)
    assert len({identity(other) for other in make(type(loss))}) == len(make(type(loss))), "settings do not show"
    for name in (f.name for f in fields(loss) if f.type == "float"):
        for bad in (0.0, -1.0, np.inf, np.nan, None, "1", True):
            raises(
                ValueError,
                f"{type(loss).__name__}({name}=...) expects",
                lambda bad, n=name: type(loss)(**{n: bad}),
                bad,
            )


LAWS = [derivatives, mean, members, precise, refuses, is_data]
LOSSES = [loss for kind in every(Loss) for loss in make(kind)]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@given(seed=st.integers(0, 2**32 - 1))
def test_law(law: Callable[[Any, int], None], loss: Any, seed: int) -> None:
    law(loss, seed)


# ---------------------------------------------------------------- negative controls, on which a law must fail


@dataclass(frozen=True)
class Right(type(mn.mse)):  # type: ignore[misc]
    """A correct loss: the squared loss under another name."""


class Uphill(Right):
    def cotangent(self, f: Array, y: Array) -> Array:
        return -super().cotangent(f, y)


class Bent(Right):
    def hessian(self, f: Array, y: Array, v: Array) -> Array:
        return super().hessian(f, y, v) * (1 + 1e-6)


class Curved(mn.Logistic):
    curvature = 1.0


class Total(Right):
    """A loss that sums instead of averaging."""

    def __call__(self, f: Array, y: Array) -> Array:
        return super().__call__(f, y) * len(y)

    def cotangent(self, f: Array, y: Array) -> Array:
        return super().cotangent(f, y) * len(y)


class Shared(Right):
    """A loss that returns the mean over all members instead of a value for each member."""

    def __call__(self, f: Array, y: Array) -> Array:
        return np.mean(super().__call__(f, y))


class Double(Right):
    def cotangent(self, f: Array, y: Array) -> Array:
        return np.float64(1) * super().cotangent(f, y)


class Overwrites(Right):
    def cotangent(self, f: Array, y: Array) -> Array:
        found = super().cotangent(f, y)
        f[...] = found
        return found


class Silent(Right):
    def __call__(self, f: Array, y: Array) -> Array:
        return np.nan_to_num(super().__call__(f, y))


class Careless(Right):
    def __call__(self, f: Array, y: Array) -> Array:
        return ((f - y) ** 2).sum((-2, -1)) / (2 * f.shape[-2])


WRONG = [
    (derivatives, Uphill), (derivatives, Bent), (derivatives, Curved), (mean, Total), (members, Shared),
    (precise, Double), (precise, Overwrites), (precise, Silent), (refuses, Careless),
]  # fmt: skip


@pytest.mark.parametrize(("law", "kind"), WRONG, ids=[kind.__name__ for _, kind in WRONG])
def test_a_wrong_one_is_refused(law: Callable[[Any, int], None], kind: Any) -> None:
    law(Right(), 0)
    with pytest.raises(AssertionError):
        law(kind(), 0)
    assert kind not in every(Loss)
