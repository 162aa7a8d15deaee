"""Solve large least-squares problems without a Gram matrix."""
