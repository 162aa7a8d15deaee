"""The project as a whole: what importing costs, who may import whom, docstrings, and that the README's code runs."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("minintk", "analytic")
ABOUT_BOTH = set[str]()
