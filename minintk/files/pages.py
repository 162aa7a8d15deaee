"""Render HTML pages from the package's Jinja templates."""

from __future__ import annotations

from typing import Any


def page(folder: str, **values: Any) -> str:
    """Render the page.html of the package `folder`.  Values are escaped unless marked as safe."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # only needed for pages

    loader = PackageLoader(folder, ".")
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return made.get_template("page.html").render(values)
