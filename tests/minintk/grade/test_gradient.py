"""Test that the gradient checker names causes of forty errors, passes correct functions and refuses bad arguments."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from minintk.grade import check_gradient, compare
from tests.kit.thinned import thinned
from tests.minintk.grade.wrong_gradients import (
    Wrong,
    conv_variants,
    dense,
    dense_backward,
    dense_variants,
    relu_dense,
    right_ones,
    softmax,
)

WRONG = [*dense_variants(), *conv_variants()]
RIGHT = list(right_ones())
rng = np.random.default_rng(0)
ARGS = rng.standard_normal((5, 4)), rng.standard_normal((4, 4)), rng.standard_normal(4), 0.7


def test_there_are_twenty_of_each() -> None:
    assert [len(list(variants())) for variants in (dense_variants, conv_variants)] == [20, 20]


@pytest.mark.parametrize("wrong", thinned(WRONG, every=2), ids=[wrong.name for wrong in WRONG])
def test_the_cause_is_named(wrong: Wrong) -> None:
    said = wrong.diagnose()
    assert wrong.named(said), said


@pytest.mark.parametrize(("name", "forward", "backward", "args"), RIGHT, ids=[row[0] for row in RIGHT])
def test_right_gradients_pass(name: str, forward: Any, backward: Any, args: Any) -> None:
    said = check_gradient(forward, backward, args)
    assert said.passed, said


def layer_norm(x: Any) -> Any:
    return (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)


def layer_norm_backward(u: Any, x: Any) -> Any:
    y, std = layer_norm(x), np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
    return (u - u.mean(axis=1, keepdims=True) - y * (u * y).mean(axis=1, keepdims=True)) / std


def spread(u: Any, x: Any) -> Any:
    return u[:, None, None] * np.ones_like(x)


def conv1d(x: Any, k: Any) -> Any:
    return np.stack([np.tensordot(x[:, i : i + 3], k, 2) for i in range(x.shape[1] - 2)], axis=1)


def conv1d_backward(u: Any, x: Any, k: Any) -> Any:
    dx, dk = np.zeros_like(x), np.zeros_like(k)
    for i in range(u.shape[1]):
        dx[:, i : i + 3] += np.moveaxis(k[::-1] @ u[:, i].T, 2, 0)
        dk += np.tensordot(x[:, i : i + 3], u[:, i], (0, 0))
    return dx, dk


def two_layers(x: Any, W: Any) -> Any:
    return np.maximum(x @ W, 0) @ W[:, :1]


def two_layers_unmasked(u: Any, x: Any, W: Any) -> Any:
    h, dh = np.maximum(x @ W, 0), u @ W[:, :1].T
    dW = x.T @ (dh * (h > 0))
    dW[:, :1] += h.T @ u
    return dh @ W.T, dW


@pytest.mark.parametrize(
    ("forward", "backward", "args", "says"),
    [
        (softmax, lambda u, x: u * softmax(x) * (1 - softmax(x)), ARGS[:1], "only the diagonal is there"),
        (softmax, lambda u, x: u * softmax(x), ARGS[:1], "dx"),
        (layer_norm, lambda u, x: layer_norm_backward(u, x) * x.std(axis=1, keepdims=True), ARGS[:1], "each example"),
        (lambda x: np.tanh(x), lambda u, x: u, ARGS[:1], "phi' forgotten"),
        (lambda x: np.maximum(x, 0), lambda u, x: u, ARGS[:1], "mask is missing"),
        (lambda x: x**3, lambda u, x: u**2 * x, ARGS[:1], "not linear in u"),
        (lambda x: x**3, lambda u, x: 3 * x**2, ARGS[:1], "the gradient that comes from above is forgotten"),
        (lambda x: (x * x).sum(), lambda u, x: 2 * x, ARGS[:1], "the gradient that comes from above is forgotten"),
        (lambda x: x.mean(axis=(1, 2)), spread, (rng.standard_normal((2, 6, 5, 3)),), "30 = x.shape[1] x.shape[2]"),
        (conv1d, conv1d_backward, (rng.standard_normal((2, 6, 3)), rng.standard_normal((3, 3, 3))), "flipped in space"),
        (two_layers, two_layers_unmasked, ARGS[:2], "dx: expected"),  # and no claim that x is forgotten
        (lambda x: x**3, lambda u, x: ([[1.0], [2.0, 3.0]],), ARGS[:1], "expected numbers, got [[1.0], [2.0, 3.0]]"),
        (lambda x: x.sum(), lambda u, x: u * np.ones(len(x)), ARGS[:1], "expected shape (5, 4), got (5,)"),
        (lambda x: (x, x)[:1] * 3, lambda u, x: u, ARGS[:1], "expected an array of floating-point numbers, got tuple"),
        (lambda x: np.log(x), lambda u, x: u / x, ARGS[:1], "forward: it gives nan"),
        (lambda x: x + np.random.default_rng().standard_normal(), lambda u, x: u, ARGS[:1], "different results"),
        (dense, lambda *a: dense_backward(*a)[:2], ARGS, "expected 3 gradients (dx, dW, db), got 2"),
        (dense, lambda *a: {"x": dense_backward(*a)[0], "dW": None}, ARGS, "dW: not written"),
        (relu_dense, lambda u, x, W, b: (u @ W.T, x.T @ u, u.sum(0)), ARGS[:3], "mask"),
        (lambda x: x**3, lambda u, x: u * x, (np.arange(1.0, 4),), "factor for each output, 3 to 9, that is missing"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:invalid value")
def test_what_else_is_said(forward: Callable[..., Any], backward: Callable[..., Any], args: Any, says: str) -> None:
    said = check_gradient(forward, backward, args)
    assert says in str(said), said
    assert not said.passed


def test_a_mistake_that_is_none_of_these_has_no_name() -> None:
    def wrong(u: Any, x: Any, W: Any, b: Any, m: float) -> Any:
        return dense_backward(u, x + 1, W, b, m)

    assert check_gradient(dense, wrong, ARGS).causes == {"dW": "unnamed"}


def test_an_argument_without_effect_has_no_gradient() -> None:
    """Finite differences of a constant are rounding errors, not signs of a kink, where any answer would pass."""

    def backward(u: Any, x: Any, W: Any, b: Any) -> Any:
        return u @ W.T, x.T @ u, u.sum(axis=0)

    assert check_gradient(lambda x, W, b: x @ W, backward, ARGS[:3]).causes == {"db": "not zero"}


def test_only_some_arguments() -> None:
    def backward(u: Any, x: Any, W: Any, b: Any, m: float) -> Any:
        return (m * u @ W.T,)

    assert check_gradient(dense, backward, ARGS, wrt=[0]).passed
    assert check_gradient(dense, dense_backward, ARGS, wrt=[1]).passed
    assert not check_gradient(dense, backward, ARGS).passed


def test_what_cannot_be_checked_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one array of floating-point"):
        check_gradient(lambda n: n, lambda u, n: u, (3,))
    with pytest.raises(ValueError, match="at most 4096"):
        check_gradient(lambda x: x, lambda u, x: u, (np.ones((100, 100)),))
    with pytest.raises(TypeError, match="expects two functions"):
        check_gradient(None, lambda u: u, ARGS)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("got", "want", "says"),
    [
        (np.ones((3, 2)).T, np.ones((3, 2)), "got (2, 3): it is transposed"),
        (np.ones(3, np.float64), np.ones(3, np.float32), "expected float32"),
        (np.array([1.0, np.nan]), np.ones(2), "nan at (1,)"),
        (None, np.ones(2), "None is returned"),
        ("no", np.ones(2), "expected numbers"),
        ((1.0,), (1.0, 2.0), "expected 2 results"),
        ({"a": 1.0}, {"b": 1.0}, "expected the keys ['b']"),
        ((1.0, 2.5), (1.0, 2.0), "r[1]: expected 2, got 2.5"),  # a single number is a multiple of any other
        ((1.0, 1.0), (1.0, 2.0), "r[1]: right but for a factor 0.5"),
        ([np.ones(2), np.ones((2, 2))], [np.ones((2, 2)), np.ones(2)], "r: expected shapes (2, 2), (2,), got (2,), (2"),
        ({"b": np.ones(2), "a": np.ones(3)}, {"a": np.ones(3), "b": np.ones(2)}, None),
        ((2.0, (4.0, 8.0)), (1.0, (2.0, 4.0)), "r: right but for a factor 2"),
        ((1.0, (4.0, 8.0)), (1.0, (2.0, 4.0)), "r[1]: right but for a factor 2"),
        (np.array([1.0, 2, 4]), np.array([1.0, 2, 3]), "expected 3, got 4 at (2,)"),
        ([[1.0], [2.0, 3.0]], np.ones(2), "expected numbers"),
        (np.ones((3, 2)), 2 * np.ones(3), "the sum over axis 1 is missing"),
        (np.ones((1, 2)), np.ones(2), "axes of length 1"),
        (True, False, "expected False, got True"),
        (np.inf, np.inf, None),
        (np.array([1 + 1e-12]), np.array([1.0]), None),
        (2, 2.0, None),
    ],
)
def test_results_are_compared(got: Any, want: Any, says: str | None) -> None:
    said = compare("r", got, want)
    assert said.passed if says is None else says in str(said), said
