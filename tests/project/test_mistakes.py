"""Test that plausible mistakes raise errors that state what was expected, and leave no files behind.

Mistakes that concern a single module are tested with that module.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import analytic
import minintk

mn: Any = minintk  # wrong types are intended here, and mypy must not report them
an: Any = analytic
dg = mn.diagnostics
SPEC = mn.Sequential(mn.Dense(8, w_std=2**0.5, b_std=0.1), mn.ReLU(), mn.Dense(1))
LINEAR = mn.Sequential(mn.Dense(4), mn.Dense(1))
RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((6, 5)), RNG.standard_normal((6, 1))
NET, OTHER = mn.Network(SPEC, (5,)), mn.Network(SPEC, (7,))
THETA = NET.init(RNG)
K, KERNEL = an.kernel(SPEC).ntk(X), an.kernel(SPEC)
MODES = an.cube_modes(an.kernel(SPEC), d=4)
ABC = mn.ABC(a=(0, 0.5, 0.5), b=(0, 0, 0), c=(0, 0, 0))


def growing(n: int) -> Any:
    return mn.zoo.mlp(2, n, 1)


def train(**changes: Any) -> Any:
    given: dict[str, Any] = {"model": NET, "theta": THETA, "x": X, "y": Y, "loss": mn.mse, "optimizer": mn.SGD(0.1)}
    return mn.train(**({"steps": 1} | given | changes))


def check(**changes: Any) -> Any:
    given = {"spec_of_width": growing, "x": X, "y": Y, "optimizer": mn.SGD(0.1), "loss": mn.mse, "widths": (8, 16)}
    return mn.coordinate_check(**({"seeds": 2} | given | changes))


def transfer(**changes: Any) -> Any:
    given = {"spec_of_width": growing, "x": X, "y": Y, "optimizer": mn.SGD, "loss": mn.mse, "widths": (8, 16)}
    return mn.learning_rate_transfer(**({"steps": 1, "seeds": 2, "rates": [0.1, 0.2, 0.4]} | given | changes))


def fit(**changes: Any) -> Any:
    return mn.fit(NET, THETA, X, Y, **({"loss": mn.mse, "optimizer": mn.SGD(0.1), "epochs": 1} | changes))


def flow(**changes: Any) -> Any:
    return list(mn.flow(NET, THETA, X, Y, **({"loss": mn.mse, "times": 1} | changes)))


A_MODEL = r"expected a model such as mn\.Network\(spec, x\.shape\[1:\]\), got Sequential"
A_NETWORK = r"expected a network, mn\.Network\(spec, x\.shape\[1:\]\), got Sequential"

MISTAKES: dict[str, tuple[Any, type[Exception], str]] = {
    # specs and networks
    "a list of layers": (lambda: mn.Sequential([mn.Dense(3)]), TypeError, r"write Sequential\(\*layers\)"),
    "N in the shape": (lambda: mn.Network(SPEC, X.shape), ValueError, r"the shape of one example is x\.shape\[1:\]"),
    "no shape": (lambda: mn.Network(SPEC, None), ValueError, r"input_shape expects .* got None"),
    "the data as shape": (lambda: mn.Network(SPEC, X), ValueError, r"input_shape expects"),
    "float16": (lambda: NET.init(RNG, dtype="float16"), TypeError, "dtype expects float32 or float64, got 'float16'"),
    "no dtype": (lambda: NET.init(RNG, dtype="single precision"), TypeError, "dtype expects float32 or float64"),
    # kernels
    "the spec's kernel": (lambda: mn.ntk(SPEC, THETA, X), TypeError, A_MODEL),
    "a NaN in theta": (lambda: mn.ntk_full(NET, THETA * np.nan, X), ValueError, "theta holds .* NaN"),
    "memory in words": (lambda: mn.ntk(NET, THETA, X, memory="2GB"), ValueError, "memory expects a finite number"),
    "a parametrization's name": (lambda: an.kernel(SPEC, "ntk"), TypeError, r"expects an object such as mn\.NTK\(\)"),
    "a parametrization's class": (lambda: an.kernel(SPEC, mn.NTK), TypeError, r"expects an object such as mn\.NTK\(\)"),
    "examples of nothing": (lambda: KERNEL.ntk(np.zeros((3, 0))), ValueError, r"examples that hold numbers"),
    "a negative bound": (lambda: KERNEL.ntk(X, memory=-1), ValueError, "memory expects a finite number > 0, got -1"),
    # training
    "a spec trains": (lambda: train(model=SPEC), TypeError, A_MODEL),
    "a loss's name": (lambda: train(loss="mse"), TypeError, r"loss expects a loss such as mn\.mse"),
    "a list of scales": (lambda: train(lr_scales=[1.0]), TypeError, r"lr_scales expects \{tensor name: scale\}"),
    "a scale in words": (lambda: train(lr_scales={"0.W": "a"}), ValueError, r"lr_scales\['0\.W'\] expects a finite"),
    "resume at a step": (lambda: train(resume=3), TypeError, r"resume expects the state of a snapshot.* got 3"),
    "x alone to test": (lambda: fit(test=X), TypeError, r"test expects a pair \(x, y\), got ndarray"),
    "one of a pair": (lambda: fit(test=(X,)), TypeError, r"test expects a pair"),
    "a spec to evaluate": (lambda: mn.evaluate(SPEC, THETA, X, Y, loss=mn.mse), TypeError, A_MODEL),
    "a name to evaluate": (lambda: mn.evaluate(NET, THETA, X, Y, loss="mse"), TypeError, "loss expects a loss"),
    "empty batches": (
        lambda: mn.evaluate(NET, THETA, X, Y, loss=mn.mse, batch_size=0),
        ValueError,
        "batch_size expects",
    ),
    "nothing to evaluate": (lambda: mn.evaluate(NET, THETA, X[:0], Y[:0], loss=mn.mse), ValueError, "at least one"),
    "a list of targets": (lambda: mn.mse(Y, Y.tolist()), TypeError, "expected arrays of one library"),
    "times in words": (lambda: flow(times="a"), ValueError, "times expects numbers > 0, increasing, got 'a'"),
    "no times": (lambda: flow(times=None), ValueError, "times expects numbers > 0, increasing, got None"),
    "a rate in words": (
        lambda: mn.SpectralDescent("a", NET.layout),
        ValueError,
        r"lr=\.\.\.\) expects a finite number",
    ),
    "a curve of nothing": (lambda: mn.History().draw("x.png"), ValueError, "draw expects rows with a loss, got 0 rows"),
    # widths
    "NaN exponents": (lambda: mn.ABC((0, 0.5, np.nan), (0, 0, 0), (0, 0, 0)), ValueError, r"ABC\(a=\.\.\.\) expects"),
    "shifted by NaN": (lambda: ABC.shifted(np.nan), ValueError, r"shifted expects numbers, got \(nan,\)"),
    "shifted by a word": (lambda: ABC.shifted("a"), ValueError, "shifted expects numbers"),
    "equal to NTK()": (lambda: ABC.equivalent(mn.NTK()), TypeError, r"equivalent expects an mn\.ABC"),
    "a class's exponents": (lambda: mn.exponents(mn.NTK), TypeError, r"expects an object such as mn\.NTK\(\)"),
    "a class to check": (
        lambda: check(optimizer=mn.SGD),
        TypeError,
        r"optimizer expects one such as mn\.SGD\(lr=0\.1\)",
    ),
    "a name to check": (lambda: check(optimizer="sgd"), TypeError, r"optimizer expects one .* got 'sgd'"),
    "a spec to check": (
        lambda: check(spec_of_width=SPEC),
        TypeError,
        "spec_of_width expects a function, width -> spec",
    ),
    "one width": (lambda: check(widths=64), ValueError, "widths expects two different whole numbers .* got 64"),
    "float widths": (lambda: check(widths=(8.0, 16.0)), ValueError, r"widths expects .* got \(8\.0, 16\.0\)"),
    "a list to check": (lambda: check(x=X.tolist()), TypeError, "expected arrays of one library"),
    "whole pixels": (lambda: check(x=X.astype(int)), TypeError, "x expects float32 or float64, got int64"),
    "a tolerant word": (lambda: check(tolerance="a"), ValueError, "tolerance expects a finite number"),
    "a seed": (lambda: check(rng=0), TypeError, r"rng expects a numpy\.random\.Generator"),
    "an optimiser at one rate": (lambda: transfer(optimizer=mn.SGD(0.1)), TypeError, "function rate -> optimiser"),
    "one rate": (lambda: transfer(rates=0.1), ValueError, "rates expects three or more learning rates .* got 0.1"),
    "rates in words": (lambda: transfer(rates=["a", "b", "c"]), ValueError, "rates expects three or more"),
    "a seed to transfer": (lambda: transfer(rng=3), TypeError, r"rng expects a numpy\.random\.Generator"),
    # optimisers
    "true for SGD": (lambda: mn.SGD(lr=True), ValueError, r"SGD\(lr=\.\.\.\) expects a finite number > 0, got True"),
    "a rate in words for Adam": (
        lambda: mn.Adam(lr="0.1"),
        ValueError,
        r"Adam\(lr=\.\.\.\) expects a finite number > 0, got '0.1'",
    ),
    "a schedule's class": (lambda: mn.SGD(mn.StepDecay), ValueError, r"SGD\(lr=\.\.\.\) expects a finite number"),
    "momentum in words for SGD": (
        lambda: mn.SGD(0.1, momentum="0.9"),
        ValueError,
        r"expects a number in \[0, 1\), got '0.9'",
    ),
    "decay in words": (lambda: mn.SGD(0.1, weight_decay="1"), ValueError, "expects a finite number >= 0, got '1'"),
    # closed forms
    "true as a rate": (lambda: an.gradient_flow(K, Y, lr=True), ValueError, "lr expects a finite number > 0, got True"),
    "true as a ridge": (lambda: an.gradient_flow(K, Y, ridge=True), ValueError, "ridge expects a finite number >= 0"),
    "time in words": (lambda: an.gradient_flow(K, Y).predict("a"), ValueError, "t expects numbers >= 0"),
    "momentum in words": (lambda: an.max_learning_rate(K, momentum="a"), ValueError, "momentum expects a number"),
    "far too deep": (lambda: an.depth_over_width(200), ValueError, r"expects beta up to 142, got 200"),
    "depth in words": (lambda: an.depth_over_width("a"), ValueError, "depth_over_width expects beta >= 0"),
    "a kernel for modes": (lambda: an.eigenlearning(K, 3), TypeError, r"modes expects analytic\.sphere_modes"),
    "power in words": (lambda: an.eigenlearning(MODES, 3).test_error("a"), ValueError, "test_error expects a power"),
    "a limit at a word": (
        lambda: an.two_layer_limit(LINEAR, X, Y).predict("a"),
        ValueError,
        "t expects finite numbers",
    ),
    # diagnostics
    "a spec's norms": (lambda: dg.natural_norms(SPEC), TypeError, A_NETWORK),
    "a spec's layers": (lambda: dg.trace(SPEC, THETA, X), TypeError, A_NETWORK),
    "a spec's kappa": (lambda: dg.kappa(SPEC, THETA, X), TypeError, A_MODEL),
    "a spec that moves": (lambda: dg.weight_movement(SPEC, THETA, THETA), TypeError, A_MODEL),
    "the norms of a wrapped network": (
        lambda: dg.spectral_norms(mn.Linearized(NET, THETA), THETA),
        TypeError,
        "give the network inside it",
    ),
    "another network's theta": (
        lambda: dg.update_alignment(NET, THETA, OTHER.init(RNG), X),
        ValueError,
        r"theta expects shape",
    ),
    "a negative accuracy": (lambda: dg.spectral_norm(X, rtol=-1), ValueError, "rtol expects a finite number >= 0"),
    "widths in words": (lambda: dg.power_law("a", [X[0]]), ValueError, "power_law expects two or more widths"),
    # data
    "a seed for points": (lambda: mn.datasets.sphere(5, 3, 0), TypeError, r"rng expects a numpy\.random\.Generator"),
    "a seed for corners": (lambda: mn.datasets.cube(5, 3, 0), TypeError, r"rng expects a numpy\.random\.Generator"),
    "whole grey levels": (lambda: mn.datasets.digits(dtype=int), TypeError, "dtype expects float32 or float64, got"),
    # sweeps
    "no work": (lambda: mn.sweep(3, {"a": [1]}, store="x"), TypeError, "work expects a function"),
    "a list for a grid": (lambda: mn.sweep(dict, [1], store="x"), TypeError, r"grid expects \{name: values\}"),
    "nowhere to store": (lambda: mn.sweep(dict, {"a": [1]}, store=None), TypeError, "store= expects a folder"),
    "cores for an executor": (
        lambda: mn.sweep(dict, {"a": [1]}, store="x", executor=4),
        TypeError,
        "executor expects a concurrent.futures.Executor, got 4",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_refused_in_words(mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    call, error, says = MISTAKES[mistake]
    with pytest.raises(error, match=says):
        call()
    assert list(tmp_path.iterdir()) == []


def test_what_is_right_is_not_refused(tmp_path: Path) -> None:
    """Similar but valid calls raise no error, such as with NumPy scalars, lists of times or callable optimisers."""
    assert len(list(train(steps=np.int64(1), lr_scales={"0.W": np.float32(0.5)}))) == 2
    assert mn.Network(SPEC, [np.int64(5)]).size == NET.size
    assert [m.t for m in flow(times=[np.float32(0.5), 1])] == [0.0, 0.5, 1.0]
    assert check(optimizer=lambda net: mn.SpectralDescent(0.1, net.layout), widths=np.array([8, 16])).widths == (8, 16)
    assert transfer(rates=np.array([0.1, 0.2, 0.4])).rates == (0.1, 0.2, 0.4)
    assert an.gradient_flow(K, Y, lr=np.float32(0.5)).predict([0, np.inf]).shape == (2, 6, 1)
    assert an.depth_over_width(141.0) < np.inf
    assert an.eigenlearning(MODES, 3).test_error([0, 1, 0, 0, 0]) > 0
    assert KERNEL.ntk(X, memory=10**9).shape == mn.ntk(NET, THETA, X, memory=int(1e9)).shape == (6, 6)
    with ThreadPoolExecutor(1) as executor:
        assert mn.sweep(dict, {"a": [1, 2]}, store=tmp_path, executor=executor)["a"].tolist() == [1, 2]
