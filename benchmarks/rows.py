"""Collect the rows by name: TIMED contains those that are timed, and ROWS also those whose accuracy is measured."""

from __future__ import annotations

import accuracy
import ensembles
import kernels
import single
from harness import Row

TIMED: dict[str, Row] = {row.name: row for row in (*kernels.ROWS, *single.ROWS, *ensembles.ROWS)}
ROWS: dict[str, Row] = TIMED | {row.name: row for row in accuracy.ROWS.values()}
