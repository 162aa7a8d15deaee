"""Declare commands.  A command has options and a function that takes the parsed arguments and returns an exit status.

Exit status: 0 = success, 1 = failure (or undecided `coordinate-check`), 2 = error, 3 = undecided, 130 = interrupted.
"""

from __future__ import annotations

from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable
from typing import Any

OK, FAILED, USAGE, UNDECIDED, INTERRUPTED = 0, 1, 2, 3, 130

Run = Callable[[Namespace], int]
Option = tuple[str, dict[str, Any]]

COMMANDS: dict[str, tuple[Run, str, str, tuple[Option, ...]]] = {}
"""{name: (function, help, description, options)}, filled by `command` in the modules of the commands."""


def option(name: str, metavar: str | None = None, about: str = "", default: Any = None, **more: Any) -> Option:
    """Return an option or argument.  The default sets the type and is shown in the help.  more : see `add_argument`."""
    if default is not None:
        about, more = f"{about} ({default})".lstrip(), {"type": type(default), "default": default} | more
    return name, {key: value for key, value in {**more, "metavar": metavar, "help": about}.items() if value is not None}


def command(name: str, brief: str, description: str, *options: Option) -> Callable[[Run], Run]:
    """Register the decorated function as a command."""

    def register(run: Run) -> Run:
        COMMANDS[name] = run, brief, description, options
        return run

    return register


def whole_numbers(text: str) -> tuple[int, ...]:
    """Convert "32,64,128" to a tuple of integers."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ArgumentTypeError(f"expects whole numbers separated by commas, 32,64, got {text!r}") from None


def names(text: str) -> tuple[str, ...]:
    """Split "relu, erf" into names in lower case."""
    return tuple(part.strip().lower() for part in text.split(","))


DATA = option("--data", "NAME|DIR", "digits, mnist, cifar10, or a folder with their files", "digits")
DEVICE = option("--device", about="device for training", default="cpu", choices=("cpu", "gpu"))
SEED = option("--seed", "K", "seed of all random numbers", 0)
