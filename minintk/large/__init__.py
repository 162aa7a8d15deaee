"""Solve large problems: least squares without a Gram matrix."""
