"""The finite layers, one family a file."""

from minintk.layers import activation, combine, conv, dense, norm, pool

__all__ = ["activation", "combine", "conv", "dense", "norm", "pool"]
