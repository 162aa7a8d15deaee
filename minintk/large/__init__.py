"""Solve large least-squares problems with a Gram matrix, or without any matrix."""
