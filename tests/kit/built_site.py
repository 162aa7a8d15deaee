"""List the pages of the built documentation."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "site"


def pages() -> list[Path]:
    """Return the paths of the documentation's pages. Skip the test if the documentation has not been built."""
    if not (SITE / "searchindex.js").exists():
        pytest.skip("site/ has not been built: python3 make.py docs")
    others = {"_static", "lite"}  # folders of Sphinx and JupyterLite
    return sorted(path for path in SITE.rglob("*.html") if path.relative_to(SITE).parts[0] not in others)
