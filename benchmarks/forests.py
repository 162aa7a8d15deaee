"""Compare infinite-width kernels with a random forest and an SVM on five of scikit-learn's data sets.

    python benchmarks/forests.py [--splits 10]          some ten minutes; kept in docs/scikit-learn.md

For each random split, every method chooses among nine settings by three-fold cross-validation on one half of the
examples. With the chosen setting, the method then predicts the other half. The table shows the mean over splits of the
accuracy, or of R^2 for diabetes. Parentheses contain the 95 % interval of the difference from the forest, by Student's
t over splits, as if they shared no examples. The comparison follows Arora et al. 2020, section 5.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from scipy.stats import t as student
from sklearn import datasets
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

import analytic as an

TABLES = "iris", "wine", "breast_cancer", "digits", "diabetes"
FOREST = {"max_features": [0.1, 0.3, 1.0], "min_samples_leaf": [1, 3, 10]}
SVM = {"C": [0.1, 1.0, 10.0], "gamma": [0.3, 1.0, 3.0]}
NETWORK = {"depth": [1, 3, 5], "ridge": [1e-4, 1e-2, 1.0]}
METHODS: dict[str, Any] = {
    "forest": (RandomForestClassifier(300, random_state=0), RandomForestRegressor(300, random_state=0), FOREST),
    "SVM": (SVC(), SVR(), SVM),
    "NTK": (an.NTKClassifier(), an.NTKRegressor(), NETWORK),
    "NNGP": (an.NNGPClassifier(), an.NNGPRegressor(), NETWORK),
}


def score(method: str, table: str, X: Any, y: Any, seed: int) -> float:
    """Return the method's score on one half of the examples, with hyperparameters chosen on the other half."""
    regression = table == "diabetes"
    one, other, y_one, y_other = train_test_split(
        X, y, test_size=0.5, random_state=seed, stratify=None if regression else y
    )
    estimator, grid = METHODS[method][regression], METHODS[method][2]
    if method == "SVM":
        grid = grid | {"gamma": [g / X.shape[1] for g in SVM["gamma"]]}
    pipe = make_pipeline(StandardScaler(), estimator)
    name = pipe.steps[-1][0]
    search = GridSearchCV(pipe, {f"{name}__{key}": values for key, values in grid.items()}, cv=3)
    return float(search.fit(one, y_one).score(other, y_other))


def main() -> None:
    """Score all methods on all data sets and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=10)
    splits = parser.parse_args().splits
    print(f"| table | examples | {' | '.join(METHODS)} |\n|{' --- |' * (2 + len(METHODS))}")
    for table in TABLES:
        X, y = getattr(datasets, f"load_{table}")(return_X_y=True)
        found = {m: np.array([score(m, table, X, y, seed) for seed in range(splits)]) for m in METHODS}
        cells = [f"{found['forest'].mean():.3f}"]
        for method in list(METHODS)[1:]:
            apart = found[method] - found["forest"]
            half = student.ppf(0.975, splits - 1) * apart.std(ddof=1) / splits**0.5
            low, high = apart.mean() - half, apart.mean() + half
            cells.append(f"{found[method].mean():.3f} ({low:+.3f} to {high:+.3f})")
        print(f"| {table} | {len(y)} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
