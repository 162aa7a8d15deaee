"""Collect the rows by name: TIMED contains the timed rows, and ROWS also the rows that measure accuracy."""

from __future__ import annotations

import accuracy
import ensembles
import kernels
import single
from harness import Row

TIMED: dict[str, Row] = {row.name: row for row in (*kernels.ROWS, *single.ROWS, *ensembles.ROWS)}
ROWS: dict[str, Row] = TIMED | {row.name: row for row in accuracy.ROWS.values()}
