"""Measure the coverage of error bars, the evidence and the costs of the estimators, for docs/scikit-learn.md.

    python3 make.py python benchmarks/estimators.py            coverage and evidence, half a minute
    python3 make.py python benchmarks/estimators.py --costs    CPU seconds, memory, pickles; two minutes, Linux

With --costs, each row runs in a separate process with one thread. The reported memory is its peak resident size.
"""

from __future__ import annotations

import os
import pickle
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.datasets import make_friedman1
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, WhiteKernel
from sklearn.preprocessing import StandardScaler

import analytic as an

ROWS = (
    ("NTKRegressor", "5000", "", "float64"), ("NNGPRegressor", "5000", "", "float64"),
    ("NTKRegressor", "10000", "", "float32"), ("NTKRegressor", "5000", "2000", "float64"),
    ("NTKRegressor", "10000", "2000", "float64"), ("NTKRegressor", "20000", "2000", "float64"),
    ("NTKRegressor", "20000", "500", "float64"),
)  # fmt: skip


def intervals() -> None:
    """Print the std of z = (y - mean) / sd on 1,000 test examples, and the shares with |z| below 1 and 1.96."""
    X, y = make_friedman1(1700, noise=1.0, random_state=0)
    X = StandardScaler().fit(X[:700]).transform(X)
    models: list[Any] = [kind(normalize_y=n) for n in (False, True) for kind in (an.NTKRegressor, an.NNGPRegressor)]
    models.append(GaussianProcessRegressor(an.NetworkKernel() + WhiteKernel(), normalize_y=True))
    for model in models:
        mean, std = model.fit(X[:700], y[:700]).predict(X[700:], return_std=True)
        z = (y[700:] - mean) / std
        name, within = " ".join(repr(model).split()), [float(np.mean(abs(z) < most)) for most in (1, 1.96)]
        print(f"| `{name}` | {z.std():.2f} | {within[0]:.2f} | {within[1]:.2f} |")


def scales() -> None:
    """Print the log evidence of erf and ReLU kernels for 300 examples, with and without a constant factor."""
    X, y = make_friedman1(700, noise=1.0, random_state=0)
    X = StandardScaler().fit_transform(X)
    for activation in ("erf", "relu"):
        kernel = an.NetworkKernel(activation=activation)
        for one in (kernel, ConstantKernel() * kernel):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # warnings that the noise is at its bound
                model = GaussianProcessRegressor(one + WhiteKernel(), normalize_y=True).fit(X[:300], y[:300])
            print(f"evidence {model.log_marginal_likelihood_value_:.1f}: {model.kernel_!r}")


class Counted:
    """A file-like object that counts the bytes written to it and discards them."""

    bytes = 0

    def write(self, data: Any) -> None:
        """Add the number of bytes in `data`."""
        self.bytes += memoryview(data).nbytes


def cost(name: str, n: str, landmarks: str, dtype: str) -> None:
    """Print the costs of a fit, predictions and (for exact float64 models) error bars, and the pickled model's size."""
    rng, N = np.random.default_rng(0), int(n)
    X, T = rng.standard_normal((N, 20)).astype(dtype), rng.standard_normal((2000, 20)).astype(dtype)
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal(N)
    model = getattr(an, name)(landmarks=int(landmarks) if landmarks else None)
    calls: list[Callable[[], Any]] = [lambda: model.fit(X, y), lambda: model.predict(T)]
    calls += [lambda: model.predict(T, return_std=True)] if not landmarks and dtype == "float64" else []
    cells, size = [], 0.0
    for call in calls:
        start = time.process_time()
        call()
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        cells.append(f"{time.process_time() - start:.2f} s, {most / 1e6:.2f} GB")
        if len(cells) == 1:
            pickle.dump(model, sink := Counted(), protocol=5)  # copies no array, so the peak memory is unchanged
            size = sink.bytes / 1e6
    print("|", " | ".join((name, n, landmarks, dtype, *cells, *[""] * (3 - len(cells)), f"{size:.1f} MB")), "|")


if __name__ == "__main__":
    if sys.argv[1:] == ["--costs"]:
        one = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        for row in ROWS:
            subprocess.run([sys.executable, __file__, *row], check=True, env=one)
    elif sys.argv[1:]:
        cost(*sys.argv[1:])
    else:
        intervals()
        scales()
