"""Read and write files safely, and share work between processes through a folder.

Reading order:

    writing    atomic writes (a file is either complete or unchanged), and the error of a full disk
    reading    reading with bounded memory, without pickled classes, and with one kind of error
    pages      HTML pages from the templates inside the package
    locks      file locks on units of work, released when a process ends (see docs/long-runs.md)
"""
