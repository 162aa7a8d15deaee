"""Cheaper ways for kernels: planes of pairs of pixels by Numba or CUDA, and formulas as compiled code."""
