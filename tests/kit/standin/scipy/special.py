"""Provide the functions of cupyx.scipy.special, computed by SciPy."""

import sys

import scipy.special

from tests.kit.standin.namespace import _fill

_fill(sys.modules[__name__], "cupyx.scipy.special", scipy.special)
