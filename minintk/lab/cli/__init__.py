"""Provide `minintk verify`, `examine`, `train`, `coordinate-check`, `transfer`, `reproduce`, `grade` and `doctor`.

    options     declares commands, their options and exit statuses
    terminal    prints the output of commands
    sweeps, single, grading: define the commands; each command is a function with its options above it
    main        parses the command line, runs one command, and handles its errors

Commands import modules such as rich only when they run, so that `minintk --help` is fast.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

import minintk
from minintk.lab.cli import grading, single, sweeps
from minintk.lab.cli.options import COMMANDS, FAILED, INTERRUPTED, OK, UNDECIDED, USAGE

__all__ = ["COMMANDS", "FAILED", "INTERRUPTED", "OK", "UNDECIDED", "USAGE", "main"]

ELSEWHERE = ("analytic.verify.command", "minintk.examination.command")
"""Modules outside minintk.lab that define commands.  Those that were deleted are skipped."""


def commands() -> Iterator[tuple[str, Any]]:
    """Yield (name, command) for all commands, beginning with those defined in ELSEWHERE."""
    for name in ELSEWHERE:
        with suppress(ModuleNotFoundError):
            import_module(name)
    yield from sorted(COMMANDS.items(), key=lambda item: [item[1][0].__module__ != one for one in ELSEWHERE])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command with the given arguments, by default those in sys.argv, and return the exit status.

    >>> main(["verify", "--widths", "64"])                       # the reason is on stderr
    2
    """
    parser = argparse.ArgumentParser(
        prog="minintk", description="Neural networks in every form that the theory of wide networks uses."
    )
    parser.add_argument("--version", action="version", version=f"minintk {minintk.__version__}")
    group = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, (run, brief, description, options) in commands():
        command = group.add_parser(name, help=brief, description=description)
        for option, about in options:
            command.add_argument(option, **about)
        command.set_defaults(run=run, prog=command.prog)
    try:
        args = parser.parse_args(arguments)
        args.command = shlex.join(["minintk", *(sys.argv[1:] if arguments is None else arguments)])
    except SystemExit as stop:  # argparse has printed the reason
        return int(stop.code or 0)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a Windows console or its pipe can lack Greek letters
            stream.reconfigure(errors="replace")
    try:
        status: int = args.run(args)
    except KeyboardInterrupt as stop:
        print(f"\n{args.prog}: interrupted; {str(stop) or 'nothing was written'}", file=sys.stderr)
        return INTERRUPTED
    except (ValueError, TypeError, OSError, ImportError, RuntimeError, MemoryError, ArithmeticError) as error:
        print(f"{args.prog}: error: {error}", file=sys.stderr)
        return USAGE
    return status
