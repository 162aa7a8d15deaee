"""The time that a sweep still takes: a power of each size, learned from the calls that have ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, log
from typing import Any

import numpy as np

WIDTHS = {"width", "n", "h", "D", "channels"}
"""Sizes of which a layer's work is the square; it is linear in other whole numbers, until a sweep shows otherwise."""
NO_SIZE = {"seed", "repeat"}
SCATTER, DOUBT = 0.2, 1.0
"""Standard deviations of log seconds about the law, and of a power about what is expected of it."""


class Costs:
    """Seconds of calls, c prod_k size_k^p_k: a ridge regression of log seconds, towards the powers expected.

    calls : the arguments of each call.  members : how many runs each one makes at once.

    >>> costs = Costs([{"width": 10}, {"width": 20}, {"width": 40}], [1, 1, 1])
    >>> round(costs.ended(0, 3.0), 12)                            # of 1 + 4 + 16 parts, by the square of the width
    0.047619047619
    """

    def __init__(self, calls: Sequence[Mapping[str, Any]], members: Sequence[int]) -> None:
        columns, powers = [np.ones(len(calls)), np.log(members)], [0.0, 1.0]
        for name in calls[0] if calls else ():
            values = [call[name] for call in calls]
            kinds = dict.fromkeys(map(repr, values))
            if name in NO_SIZE or isinstance(values[0], tuple):
                continue
            if all(isinstance(v, (int, float)) and not isinstance(v, bool) and 0 < v < inf for v in values):
                columns.append(np.array([log(v) for v in values]))
                powers.append(2.0 if name in WIDTHS else float(all(isinstance(v, int) for v in values)))
            elif len(kinds) <= 10:
                columns += [np.array([repr(v) == kind for v in values], float) for kind in kinds]
                powers += [0.0] * len(kinds)
        self._features, self._expected = np.stack(columns, axis=1), np.array(powers)
        self._weights = np.diag([1e-9, *[DOUBT**-2] * (len(powers) - 1)])
        self._seen = np.zeros(len(powers))
        self._took, self._left = np.full(len(calls), np.nan), np.ones(len(calls), bool)

    def seconds(self) -> Any:
        """Predict the seconds of each call; in a unit of its own before one has ended."""
        powers = self._expected + np.linalg.solve(self._weights, self._seen)
        return np.exp(np.minimum(self._features @ powers, 700.0))

    def ended(self, i: int, seconds: float | None = None) -> float:
        """Return the share of all seconds that is done, call i with it.  seconds : None if another process made it."""
        if seconds:
            x = self._features[i]
            self._weights += np.outer(x, x) / SCATTER**2
            self._seen += x * (log(seconds) - x @ self._expected) / SCATTER**2
        self._took[i], self._left[i] = seconds or np.nan, False
        each = np.where(np.isnan(self._took), self.seconds(), self._took)
        return float(each[~self._left].sum() / each.sum())
