"""The finite layers, one family a file.  Importing the package registers them all with `minintk.finite.bind`."""

from minintk.layers import activation, combine, dense

__all__ = ["activation", "combine", "dense"]
