"""`minintk doctor`: this machine."""

from __future__ import annotations

from argparse import Namespace

from minintk.cli.options import FAILED, OK, command
from minintk.cli.terminal import coloured, console, print_table


@command(
    "doctor",
    "what this machine has, what will be used of it, and what is broken",
    "Versions, extras, processor, memory, GPU and folders. Exit status: 0 if nothing is broken, 1 if something is.",
)
def _doctor(args: Namespace) -> int:
    from rich.markup import escape

    from minintk.doctor import examine

    found = list(examine())
    rows = [(what, coloured("fail") if broken else "", escape(text)) for what, text, broken in found]
    print_table(console(200), "this machine, for minintk", ("what", "", "found"), rows)
    return FAILED if any(broken for *_, broken in found) else OK
