"""Compute kernels faster with compiled code: Numba on the host, and CUDA on a GPU."""
