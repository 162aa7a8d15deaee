"""Print the tables and coloured verdicts of commands."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any


def console(width: int) -> Any:
    """Return a console that prints to stdout, with lines of this width if stdout is not a terminal."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else width)


def print_table(screen: Any, title: str, columns: Sequence[str], rows: Iterable[Iterable[str]]) -> None:
    """Print a table, followed by an empty line.  The cells can contain markup."""
    from rich.table import Table

    table = Table(*columns, title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for row in rows:
        table.add_row(*row)
    screen.print(table, "")


def coloured(verdict: str, said: str = "") -> str:
    """Return the text `said`, by default the verdict itself, as markup in the verdict's colour."""
    colour = {"pass": "green", "fail": "bold red", "undecided": "bold yellow"}[verdict]
    return f"[{colour}]{said or verdict}[/]"
