"""Read and write files safely, and share work between processes through a folder.

Reading order:

    writing    atomic writes: a file appears whole or not at all; clear errors if the disk is full
    reading    the only place that opens files for reading: bounded memory, no classes, one kind of error
    pages      HTML pages from the templates inside the package
    locks      file locks on units of work, released when a process ends (rules: docs/long-runs.md)
"""
