"""All rows, by name."""

from __future__ import annotations

import empirical
import kernels
import training
from harness import Row

ROWS: dict[str, Row] = {row.name: row for row in (*kernels.ROWS, *training.ROWS, *empirical.ROWS)}
