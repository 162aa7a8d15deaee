"""The finite layers, one family a file.  Importing the package registers them all with `minintk.finite.bind`."""

from minintk.layers import activation, combine, conv, dense, norm, pool

__all__ = ["activation", "combine", "conv", "dense", "norm", "pool"]
