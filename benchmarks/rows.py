"""List all rows by name: those that are timed, and those with measured accuracy."""

from __future__ import annotations

import accuracy
import ensembles
import kernels
import single
from harness import Row

TIMED: dict[str, Row] = {row.name: row for row in (*kernels.ROWS, *single.ROWS, *ensembles.ROWS)}
ROWS: dict[str, Row] = TIMED | {row.name: row for row in accuracy.ROWS.values()}
