"""Estimate the remaining time of a sweep.  The model is a product of powers of the sizes, fitted to finished calls."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

WIDTHS, NO_SIZES = {"width", "n", "h", "D", "channels"}, {"seed", "repeat"}
"""Prior powers: 2 for WIDTHS, 0 for NO_SIZES, 1 for other whole numbers, else 0.  Finished calls adjust the powers."""
SCATTER, DOUBT = 0.2, 1.0
"""Standard deviations of log seconds around the fit, and of a power p_k around its prior."""


class Costs:
    """A model c prod_k size_k^p_k of the seconds per call, fitted to their logarithms by regression towards a prior.

    calls : the arguments of each call.  members : the number of runs in each call.

    >>> costs = Costs([{"width": 10}, {"width": 20}, {"width": 40}], [1, 1, 1])
    >>> round(costs.ended(0, 3.0), 6)                             # of 1 + 4 + 16 parts, by the square of the width
    0.047619
    """

    def __init__(self, calls: Sequence[Mapping[str, Any]], members: Sequence[int]) -> None:
        columns, powers = [np.ones(len(calls)), np.log(members)], [0.0, 1.0]
        for name in calls[0] if calls else ():
            values = [call[name] for call in calls]
            if name not in NO_SIZES and all(isinstance(v, (int, float)) and 0 < v < 1e300 for v in values):
                columns.append(np.log(np.array(values, float)))
                powers.append(2.0 if name in WIDTHS else float(all(isinstance(v, int) for v in values)))
            elif len(kinds := {*map(repr, values)}) <= 10:  # one coefficient per value
                columns += [np.array([repr(v) == kind for v in values], float) for kind in sorted(kinds)]
                powers += [0.0] * len(kinds)
        self._sizes, self._powers = np.stack(columns, axis=1), np.array(powers)
        self._squares = np.diag([1e-9, *[DOUBT**-2] * (len(powers) - 1)])
        self._products, self._took = np.zeros(len(powers)), np.full(len(calls), np.nan)
        self._left = np.ones(len(calls), bool)

    def ended(self, i: int, seconds: float | None = None) -> float:
        """Record the end of call i, and return the fraction done.  seconds : None if another process made the call."""
        if seconds:
            x, self._took[i] = self._sizes[i] / SCATTER, seconds
            self._squares += np.outer(x, x)
            self._products += x * (np.log(seconds) / SCATTER - x @ self._powers)
        self._left[i] = False
        each = np.exp((self._sizes @ (self._powers + np.linalg.solve(self._squares, self._products))).clip(max=700.0))
        each = np.where(np.isnan(self._took), each, self._took)
        return float(each[~self._left].sum() / each.sum())
