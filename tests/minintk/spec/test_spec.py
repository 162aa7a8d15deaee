"""Test that a spec is plain data, and that invalid specs raise clear errors."""

from __future__ import annotations

import pickle
import re
from math import inf, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import analytic as an
import minintk as mn
from minintk.spec.structure import as_sequential
from tests.kit.strategies import chains


@given(chains((3,)))
def test_a_spec_is_a_value(spec: mn.Sequential) -> None:
    """A spec is hashable and equals its copy, and its repr is code that constructs it."""
    names = vars(mn.spec) | {"zoo": mn.zoo}
    again = eval(repr(spec), {"__builtins__": {}}, names)  # noqa: S307
    assert again == spec
    assert hash(again) == hash(spec)
    assert pickle.loads(pickle.dumps(spec)) == spec  # noqa: S301


def test_it_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        mn.Dense(3).width = 4  # type: ignore[misc]


def test_specs_that_differ_differ() -> None:
    assert mn.Dense(3) != mn.Dense(3, b_std=0.1)
    assert mn.Sequential(mn.Dense(3)) != mn.Sequential(mn.Dense(3), mn.ReLU())
    relu: mn.spec.Layer = mn.ReLU()
    assert relu != mn.Abs()


def test_a_sequential_is_a_sequence() -> None:
    spec = mn.Sequential(mn.Dense(3), mn.ReLU())
    assert len(spec) == 2
    assert list(spec) == [mn.Dense(3), mn.ReLU()]


def test_whole_numbers_of_numpy_are_whole_numbers() -> None:
    assert mn.Network(mn.Dense(np.int64(3)), (2,)).outputs == 3  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [0, -1, 2.0, "3", True, None])
def test_width_is_a_whole_number(width: Any) -> None:
    with pytest.raises(ValueError, match=r"Dense\(width=\.\.\.\) expects a whole number >= 1, got"):
        mn.Dense(width)


@pytest.mark.parametrize("w_std", [0, -1.0, nan, inf, "1", True, None])
def test_w_std_is_positive(w_std: Any) -> None:
    with pytest.raises(ValueError, match=r"Dense\(w_std=\.\.\.\) expects a (finite )?number.*, got"):
        mn.Dense(3, w_std=w_std)


@pytest.mark.parametrize("b_std", [-0.1, nan, inf, "1", None])
def test_b_std_is_not_negative(b_std: Any) -> None:
    with pytest.raises(ValueError, match=r"Dense\(b_std=\.\.\.\) expects a (finite )?number.*, got"):
        mn.Dense(3, b_std=b_std)


def test_b_init_is_one_of_two() -> None:
    with pytest.raises(ValueError, match="expects 'normal' or 'zeros', got 'ones'"):
        mn.Dense(3, b_init="ones")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "make",
    [lambda: mn.Softplus(beta=0.0), lambda: mn.Softplus(scale=nan), lambda: mn.LeakyReLU(inf), lambda: mn.Hermite(171)],
)
def test_activations_check_their_numbers(make: Any) -> None:
    with pytest.raises(ValueError, match=r"expects a (finite |whole )?number"):
        make()


NUMBERS: dict[str, Any] = {
    "LeakyReLU(slope": mn.LeakyReLU, "ABRelu(b": lambda v: mn.ABRelu(1.0, v), "Swish(beta": mn.Swish, "Sin(a": mn.Sin,
    "Sin(b": lambda v: mn.Sin(1.0, v), "Cos(c": lambda v: mn.Cos(1.0, 1.0, v), "Rbf(gamma": mn.Rbf,
    "Exp(b": lambda v: mn.Exp(1.0, v), "Gaussian(a": mn.Gaussian,
    "Polynomial(coef[1]": lambda v: mn.Polynomial((1.0, v)), "LayerNorm(eps": lambda v: mn.LayerNorm(eps=v),
    "Softplus(beta": mn.Softplus, "Scale(factor": mn.Scale, "Dropout(rate": mn.Dropout,
    "RectifiedMonomial(degree": mn.RectifiedMonomial, "Monomial(degree": mn.Monomial, "Hermite(degree": mn.Hermite,
    "GlobalSelfAttention(qk_std": lambda v: mn.GlobalSelfAttention(4, qk_std=v),
}  # fmt: skip
NO_NUMBERS = [
    nan,
    inf,
    1j,
    np.complex64(1),
    "2",
    b"2",
    True,
    np.True_,
    None,
    [1.0],
    np.ones(2),
    np.ones(1, int),
    10**400,
]


@pytest.mark.parametrize("of", NUMBERS)
def test_what_is_no_number_is_refused_with_the_name_of_the_argument(of: str) -> None:
    for value in NO_NUMBERS:
        with pytest.raises(ValueError, match=re.escape(of) + r"=\.\.\.\) expects a .*number"):
            NUMBERS[of](value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: mn.ABRelu(0.0, 0.0), lambda: mn.Sin(0.0), lambda: mn.Sin(1.0, 0.0), lambda: mn.Cos(0.0),
        lambda: mn.Exp(0.0), lambda: mn.Gaussian(0.0), lambda: mn.Softplus(1.0, 0.0), lambda: mn.Polynomial((0.0, 0.0)),
    ],
)  # fmt: skip
def test_an_activation_that_is_0_everywhere_says_so(make: Any) -> None:
    """The error names the activation and states that it is 0 everywhere."""
    with pytest.raises(ValueError, match=r"\) is 0 everywhere: a network ends there"):
        make()


@pytest.mark.parametrize("make", [lambda v: mn.ABRelu(v, v), mn.LeakyReLU, mn.Sin, lambda v: mn.Gaussian(1.0, -v)])
def test_numbers_whose_squares_leave_the_range(make: Any) -> None:
    """Magnitudes below 1e-100 (except 0) or above 1e100 raise ValueError, because kernels could over- or underflow."""
    x = np.array([[1.0, 2.0], [0.0, 0.0]])
    for value in (1e-100, 1e100):
        kernel = an.kernel(mn.Sequential(mn.Dense(3), make(value), mn.Dense(1)))
        assert np.all(np.isfinite(kernel.both(x)))
    for value in (1e-101, 1e200):
        with pytest.raises(ValueError, match=r"expects 0, or a number of size 1e-100 to 1e\+100, got"):
            make(value)


def test_sizes_are_one_number_or_a_pair() -> None:
    with pytest.raises(
        ValueError, match=r"kernel_size=.*expects a whole number >= 1 or a pair of them, got \(3, 3, 3\)"
    ):
        mn.Conv2d(3, (3, 3, 3))  # type: ignore[arg-type]


def test_a_layer_class_in_place_of_a_layer() -> None:
    with pytest.raises(TypeError, match=r"at position 1; write ReLU\(\.\.\.\)"):
        mn.Sequential(mn.Dense(3), mn.ReLU)  # type: ignore[arg-type]


def test_what_is_no_layer() -> None:
    with pytest.raises(TypeError, match="Sequential expects layers, got 3 at position 0"):
        mn.Sequential(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"Residual\(branch=\.\.\.\) expects a layer, got 'x'"):
        mn.Residual("x")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"expected a spec such as mn\.Sequential"):
        as_sequential([mn.Dense(3)])
