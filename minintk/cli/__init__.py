"""The command line: `minintk verify`, `train`, `coordinate-check`, `transfer`, `reproduce`, `grade`, `doctor`.

The same by `python -m minintk verify`.

    options     what a command is made of
    terminal    what commands print
    verify, sweeps, single: the commands, each a function with its options above it
    parser      the parser of them all, and what becomes of their errors

What `import minintk` leaves out is imported inside the commands, so that `minintk --help` stays quick.
"""

from minintk.cli.options import COMMANDS, FAILED, INTERRUPTED, OK, USAGE
from minintk.cli.parser import main

__all__ = ["COMMANDS", "FAILED", "INTERRUPTED", "OK", "USAGE", "main"]
