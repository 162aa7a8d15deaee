"""Compute kernels faster: planes of pixel pairs in Numba or CUDA, and formulas as compiled code."""
