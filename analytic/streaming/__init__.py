"""Kernels that are larger than memory, or computed by more than one process.

Reading order:

    executors    blocks of a kernel on any `concurrent.futures.Executor`
    store        blocks on disk: one writer at a time, checksums, what a kill leaves
    by_blocks    the two together, for all processes that share a store
"""
