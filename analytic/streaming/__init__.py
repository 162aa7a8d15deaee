"""Kernels that are larger than memory, or computed by more than one process.

Reading order:

    executors    blocks of a kernel on any `concurrent.futures.Executor`
    store        blocks on disk, so that a killed run can continue
"""
