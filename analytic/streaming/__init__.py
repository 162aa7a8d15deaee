"""Kernels that are larger than memory, or computed by more than one process.

Reading order:

    store        blocks on disk: one writer at a time, checksums, what a kill leaves
    by_blocks    blocks computed on any `concurrent.futures.Executor`, by all processes that share a store
"""
