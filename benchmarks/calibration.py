"""Compare the test log-losses of `NTKClassifier`, with and without calibration, and of logistic regression.

    python3 make.py python benchmarks/calibration.py

The data are scikit-learn's digits and breast cancer data sets, shuffled with seed 0 and scaled by StandardScaler. Two
thirds of the examples, but at most 600, are used for training. Without calibration, the predictive variance of an
output is the variance of the trained ensemble plus the ridge (at least 1e-7).
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.preprocessing import StandardScaler

import analytic as an
from analytic.large.estimators import shares

RIDGES: tuple[Any, ...] = (0.0, 1e-4, 1.0, "loo")


def losses(load: Any) -> tuple[list[float], list[float], float]:
    """Return two lists of log-losses over RIDGES, with and without calibration, and the loss of logistic regression."""
    X, y = load(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    X, y, n = X[order], y[order], min(len(y) * 2 // 3, 600)
    X = StandardScaler().fit(X[:n]).transform(X)
    ours, plain = [], []
    for ridge in RIDGES:
        model = an.NTKClassifier(ridge=ridge).fit(X[:n], y[:n])
        ours.append(float(log_loss(y[n:], model.predict_proba(X[n:]))))
        mean, std = model._predict(X[n:], std=True)
        spread = np.sqrt(std**2 + max(model.ridge_, 1e-7))
        plain.append(float(log_loss(y[n:], shares(mean / spread[:, None]))))
    logistic = LogisticRegression(max_iter=5000).fit(X[:n], y[:n]).predict_proba(X[n:])
    return ours, plain, float(log_loss(y[n:], logistic))


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings about constant feature columns
        print("| data | way |", *(f"ridge {ridge} |" for ridge in RIDGES), "logistic regression |")
        for load in (load_digits, load_breast_cancer):
            ours, plain, logistic = losses(load)
            print("|", load.__name__[5:], "| calibrated |", *(f"{v:.3f} |" for v in ours), f"{logistic:.3f} |")
            print("|", load.__name__[5:], "| uncalibrated |", *(f"{v:.3f} |" for v in plain), "|")
