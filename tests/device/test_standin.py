"""Test that the stand-in raises the errors that CuPy would raise, because test_device.py relies on these errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import array_api_compat
import numpy as np
import pytest

import minintk as mn
from minintk.arrays import SCIPY, array_namespace, library, on_host, scipy_module, to_host, to_library
from minintk.layers.activation import Pointwise, pointwise
from tests.kit.standin import counting, ndarray, xp

A = xp.asarray(np.arange(6.0).reshape(2, 3))
HOST = np.ones((2, 3))

REFUSED: dict[str, Callable[[], Any]] = {
    "numpy.asarray": lambda: np.asarray(A),
    "numpy.array of a list": lambda: np.array([A, A]),
    "a numpy ufunc": lambda: np.sqrt(A),
    "a numpy ufunc, mixed": lambda: np.add(HOST, A),
    "a numpy function": lambda: np.concatenate([A, A]),
    "numpy.linalg": lambda: np.linalg.norm(A),
    "numpy.ndim": lambda: np.ndim(A),
    "device + host": lambda: A + HOST,
    "host + device": lambda: HOST + A,
    "device += host": lambda: A.__iadd__(HOST),
    "host += device": lambda: HOST.__iadd__(A),
    "device @ host": lambda: A @ HOST.T,
    "device < host": lambda: A < HOST,
    "a numpy scalar": lambda: A * np.float64(2.0),
    "a numpy scalar first": lambda: np.float64(2.0) * A,
    "a whole numpy scalar, which would make float32 float64": lambda: A * np.int64(2),
    "assigning from the host": lambda: A.__setitem__(..., HOST),
    "writing into the host": lambda: HOST.__setitem__(..., A),
    "an index on the host": lambda: A[np.array([0])],
    "a mask on the host": lambda: A[HOST > 0],
    "a list as index": lambda: A[[0, 1]],
    "a slice with an end on the device": lambda: A[: xp.asarray(1)],
    "xp function of a host array": lambda: xp.exp(HOST),
    "xp function of both": lambda: xp.maximum(A, HOST),
    "out= on the host": lambda: xp.exp(A, out=HOST),
    "matmul(out=...) into a view with gaps": lambda: xp.matmul(A, A.T, out=xp.zeros((2, 4))[:, ::2]),
    "asarray of a list of arrays": lambda: xp.asarray([A, A]),
    "take with indices of the host": lambda: xp.take(A, np.array([0]), axis=0),
    "unravel_index of a number": lambda: xp.unravel_index(3, (2, 3)),
    "where= in a ufunc": lambda: xp.exp(A, where=A > 0),
    "initial= in a reduction": lambda: xp.max(A, initial=0.0),
    "where with a condition alone": lambda: xp.where(A > 0),
    "an assignment that hits a place twice": lambda: A.__setitem__(xp.asarray([0, 0]), xp.zeros((2, 3))),
    "a name that CuPy lacks": lambda: xp.block,
    "a method that CuPy lacks": lambda: A.newbyteorder,
    "draws on the device": lambda: xp.random,
    "a solver that cupyx lacks": lambda: scipy_module(xp, "linalg").cho_solve,
    "a special function that cupyx lacks": lambda: scipy_module(xp, "special").owens_t,
    "SciPy's own function": lambda: __import__("scipy.special", fromlist=["erf"]).erf(A),
    "objects": lambda: xp.asarray(np.array([None])),
    "namespace of both": lambda: array_namespace(A, HOST),
    "hash": lambda: hash(A),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refuses(what: str) -> None:
    before = A.get(), HOST.copy()
    with pytest.raises((TypeError, ValueError, AttributeError)):
        REFUSED[what]()
    assert np.array_equal(A.get(), before[0])
    assert np.array_equal(HOST, before[1])


def test_is_found_as_a_library_of_its_own() -> None:
    assert array_namespace(A) is xp
    assert library(xp) == "standin"
    assert not on_host(xp)
    assert SCIPY["standin"] == "tests.kit.standin.scipy"


def test_offers_no_name_that_neither_cupy_nor_its_wrapper_has() -> None:
    names = json.loads((Path(__file__).parents[1] / "kit" / "cupy_names.json").read_text())
    wrapper = Path(array_api_compat.__file__).parent / "cupy"
    assert {Path(module.__file__).parent for module in (xp, xp.linalg, xp.fft)} == {wrapper}
    from tests.kit.standin.namespace import cupy

    assert {n for n in vars(cupy) if not n.startswith("_")} <= {*names["cupy"], "linalg", "fft", "cuda"}
    assert {n for n in vars(cupy.linalg) if not n.startswith("_")} <= set(names["cupy.linalg"])
    methods = {n for n in vars(ndarray) if not n.startswith("_")}
    assert methods <= set(names["cupy.ndarray"])


def test_results_stay_on_the_device() -> None:
    for result in (A.sum(), xp.sum(A), A[0, 0], A @ A.T, A.T, -A, A > 1, xp.allclose(A, A), xp.eye(3), xp.argmax(A)):
        assert isinstance(result, ndarray)
    assert xp.sum(A).shape == A[0, 0].shape == ()
    assert all(isinstance(part, ndarray) for part in xp.linalg.eigh(A @ A.T))


def test_moving_to_the_device_copies() -> None:
    source = np.ones(3)
    moved = xp.asarray(source)
    source[:] = 2
    back = moved.get()
    back[:] = 3
    assert to_host(moved).tolist() == [1, 1, 1]


def test_slices_are_views_and_in_place_is_in_place() -> None:
    a = xp.zeros((2, 3))
    row = a[1]
    row += 1
    a[0, ::2] = xp.asarray(np.array([5.0, 6.0]))
    b = a
    b *= 2
    assert to_host(a).tolist() == [[10, 0, 12], [2, 2, 2]]
    out = xp.empty((2, 3))
    assert xp.exp(a, out=out) is out


WAITING: list[Callable[[Any], Any]] = [
    float,
    int,
    bool,
    str,
    lambda a: a.item(),
    lambda a: a.get(),
    lambda a: a.tolist(),
]


@pytest.mark.parametrize("wait", [*WAITING, xp.sqrt])
def test_counts_what_waits(wait: Callable[[Any], Any]) -> None:
    one = xp.sum(A)
    with counting() as counts:
        wait(one)
    assert counts.synchronisations == (wait in WAITING)


def test_counts_masks_and_uploads() -> None:
    with counting() as counts:
        A[A > 1]
        xp.asarray(HOST)
    assert (counts.synchronisations, counts.uploads) == (1, 1)


def test_a_failed_factorisation_is_silent_as_on_a_gpu() -> None:
    indefinite = np.array([[1.0, 2.0], [2.0, 1.0]])
    with pytest.raises(np.linalg.LinAlgError):
        np.linalg.cholesky(indefinite)
    L = to_host(xp.linalg.cholesky(xp.asarray(indefinite)))
    assert not np.allclose(L @ L.T, indefinite)
    assert np.all(np.diag(L) > 0)  # the diagonal does not reveal the failure


# ------------------------------------------------------------------- layers that compute on the host


@dataclass(frozen=True)
class NumPyInside(mn.spec.Activation):
    """An activation computed by a NumPy function, which works on the host but not on a GPU."""


@dataclass(frozen=True)
class ThroughTheHost(mn.spec.Activation):
    """An activation computed on the host whose result remains on the host."""


@pointwise.register
def _(layer: NumPyInside) -> Pointwise:
    return Pointwise(lambda xp, x: np.tanh(x), lambda xp, y: 1 - y**2, "y")


@pointwise.register
def _(layer: ThroughTheHost) -> Pointwise:
    return Pointwise(lambda xp, x: np.tanh(to_host(x)), lambda xp, y: 1 - y**2, "y")


@pytest.mark.parametrize("leak", [NumPyInside(), ThroughTheHost()], ids=lambda layer: type(layer).__name__)
def test_a_layer_that_leaks_numpy_fails(leak: mn.spec.Activation) -> None:
    net = mn.Network(mn.Sequential(mn.Dense(4), leak, mn.Dense(1)), (3,))
    theta, x = net.init(np.random.default_rng(0)), np.eye(3)
    assert net(theta, x).shape == (3, 1)  # NumPy raises no error
    with pytest.raises(TypeError, match=r"device|arrays of one library"):
        net(to_library(theta, xp), to_library(x, xp))
