"""All rows, by name: those that are timed, and those whose accuracy is measured."""

from __future__ import annotations

import accuracy
import empirical
import kernels
import training
from harness import Row

TIMED: dict[str, Row] = {row.name: row for row in (*kernels.ROWS, *training.ROWS, *empirical.ROWS)}
ROWS: dict[str, Row] = TIMED | {row.name: row for row in accuracy.ROWS.values()}
