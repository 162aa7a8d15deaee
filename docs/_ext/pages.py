"""Generate the pages of internal modules, the list of public names, the gallery and copies of the repository's pages.

Sphinx calls `on_start` before it reads its sources.  Git ignores the generated pages.
"""

import ast
import importlib
import inspect
import os
import pkgutil
import re
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

from minintk.grade import load

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.project.surface import MODULES, public  # noqa: E402

DOCS = ROOT / "docs"

PUBLIC = ("minintk", "analytic")
"""Packages in which each exported name has its own page."""

SHOWN = (
    "minintk.datasets", "minintk.diagnostics", "minintk.grade", "minintk.more_layers", "minintk.spec.zoo",
    "minintk.testing",
    "minintk.training.checkpoints", "analytic.verify", "analytic.textbook",
)  # fmt: skip
"""Modules that have a page in the public reference."""


def written(path: Path, text: str) -> None:
    """Write a page unless the file already has this text, so that Sphinx re-reads only changed pages."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def title(text: str, line: str = "=") -> str:
    """Return a heading in reStructuredText, underlined with the character `line`."""
    return f"{text}\n{line * len(text)}\n\n"


# ------------------------------------------------------------------------------------------- internals


def modules() -> list[str]:
    """Return the names of all modules of both packages except `__main__`, whose import would run a command."""
    found = []
    for package in map(importlib.import_module, PUBLIC):
        found.append(package.__name__)
        found += [m.name for m in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
    return [name for name in found if not name.endswith("__main__")]


def importable(name: str) -> bool:
    """Return True if the module can be imported. Some need an extra, such as `numba_kernels`."""
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


def reachable(name: str) -> bool:
    """Return True if the parent's attribute of this name is a module (`analytic.kernel`, for example, is not)."""
    parent, _, leaf = name.rpartition(".")
    return inspect.ismodule(getattr(importlib.import_module(parent), leaf, None))


def internals() -> None:
    """Write reference/internals/MODULE.rst for each importable internal module, and index.rst, which lists them."""
    folder = DOCS / "reference" / "internals"
    rooms: dict[str, list[str]] = {}
    for name in modules():
        if name not in (*PUBLIC, *SHOWN) and importable(name):
            parts = name.split(".")
            rooms.setdefault(".".join(parts[:2]), []).append(name)
            options = ":members:\n   :show-inheritance:\n" + ("" if reachable(name) else "   :no-index:\n")
            written(folder / f"{name}.rst", title(name) + f".. automodule:: {name}\n   {options}")
    kept = {f"{name}.rst" for names in rooms.values() for name in names} | {"index.rst"}
    for path in folder.glob("*.rst"):
        if path.name not in kept:
            path.unlink()
    text = title("Internals") + (
        "These pages describe every module for readers of the code. Nothing here is promised to stay. The names that "
        "users call are described in the :doc:`public reference </reference/index>`, not here. "
        "The :doc:`tour </tour>` says what to read first.\n\n"
    )
    for room, names in rooms.items():
        about = (inspect.getdoc(importlib.import_module(room)) or "").partition("\n")[0]
        plain = re.sub(r"([*_|\\])", r"\\\1", re.sub(r"`([^`]+)`", r"\1", about))
        text += title(room, "-") + f"{plain}\n\n.. toctree::\n   :maxdepth: 1\n\n"
        text += "".join(f"   {name}\n" for name in names) + "\n"
    written(folder / "index.rst", text)


def names() -> None:
    """Write reference/public/index.rst, all public names except modules, with the first sentence of each docstring."""
    text = title("Every name") + "These names do not change in version 1 (see ``tests/project/surface.txt``).\n\n"
    for module in map(importlib.import_module, dict.fromkeys((*PUBLIC, *MODULES))):
        called = sorted(n for n in public(module) if not inspect.ismodule(getattr(module, n)))
        lines = "".join(f"   {module.__name__}.{n}\n" for n in called)
        text += title(module.__name__, "-") + f".. autosummary::\n   :nosignatures:\n\n{lines}\n"
    written(DOCS / "reference" / "public" / "index.rst", text)


def exported() -> dict[int, str]:
    """Return {id: name} of every object with a page in the public reference."""
    found = {}
    for module in map(importlib.import_module, (*PUBLIC, *SHOWN)):
        for name in getattr(module, "__all__", ()):
            thing = getattr(module, name)
            if callable(thing) and not inspect.ismodule(thing):
                found[id(thing)] = f"{module.__name__}.{name}"
    for page in (DOCS / "reference").glob("*.md"):
        for name in re.findall(r"^\.\. auto(?:class|function):: (\S+)", page.read_text(encoding="utf-8"), re.M):
            module, _, leaf = name.rpartition(".")
            found[id(getattr(importlib.import_module(module), leaf))] = name
    return found


def on_skip(app: Any, what: str, name: str, thing: object, skip: bool, options: Any) -> bool | None:
    """Omit public members from the pages of internal modules. Autodoc calls this for each member."""
    here = app.env.current_document.docname
    if what == "module" and here.startswith("reference/internals/") and id(thing) in app.minintk_exported:
        return True
    return None


def filenames() -> dict[str, str]:
    """Return {name: file} for classes whose name differs from another only in case, which some file systems ignore."""
    names = [f"{package}.{name}" for package in PUBLIC for name in importlib.import_module(package).__all__]
    count = Counter(name.lower() for name in names)
    return {name: f"{name}-class" for name in names if count[name.lower()] > 1 and name.rpartition(".")[2][0].isupper()}


# --------------------------------------------------------------------------------------------- gallery


def gallery() -> None:
    """Write gallery/index.md: the claim, figure, output and script link of each example that has a figure."""
    paths = sorted((ROOT / "examples").glob("*.py"), key=order)
    paths = [path for path in paths if (DOCS / "gallery" / f"{path.stem}.png").exists()]
    cards = "".join(map(thumbnail, paths))
    text = f"# Gallery\n\n{ABOUT}\n\n::::{{grid}} 2 3 4 4\n:gutter: 2\n:class-container: thumbnails\n\n{cards}::::\n\n"
    text += "".join(map(entry, paths))
    text += "```{toctree}\n:hidden:\n\nexamples\n```\n"
    written(DOCS / "gallery" / "index.md", text)


ABOUT = """\
Each figure is drawn by one short script, which also prints what it measured. Points are measured, each series with a
marker of its own; dashed lines are theory. `python3 make.py python examples/...` draws a figure again, and
`python3 make.py python examples/gallery.py` all of them. [The papers, run again](../papers/index.md) has the figures of
the papers' claims, with their numbers beside ours; [examples](examples.md) lists the scripts."""

FIRST = ("backprop_by_hand",)


def order(path: Path) -> tuple[int, str]:
    """Return a sort key that puts examples for newcomers first."""
    return FIRST.index(path.stem) if path.stem in FIRST else len(FIRST), path.stem


def caption(path: Path) -> str:
    """Return the heading of an example's section."""
    name = path.stem.replace("_", " ")
    return f"{name[0].upper()}{name[1:]}"


def thumbnail(path: Path) -> str:
    """Return the card with an example's figure, which links to the example's section."""
    link = f":link: gallery-{path.stem}\n:link-type: ref\n:img-top: {path.stem}.png\n:img-alt: figure\n"
    return f":::{{grid-item-card}} {caption(path)}\n{link}:::\n\n"


def entry(path: Path) -> str:
    """Return the section of the gallery about one script."""
    doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    claim, _, rest = doc.partition("\n\n")
    about = [part for part in rest.split("\n\n") if not part.startswith("    ")]
    printed = path.parents[1] / "docs" / "gallery" / f"{path.stem}.txt"
    out = f"(gallery-{path.stem})=\n## {caption(path)}\n\n{plain(claim)}\n\n![{plain(claim)}]({path.stem}.png)\n\n"
    out += "".join(f"{plain(part)}\n\n" for part in about[:1])
    if printed.exists():
        out += ":::{dropdown} What it prints\n```text\n" + printed.read_text(encoding="utf-8") + "```\n:::\n\n"
    return out + f"Script: [examples/{path.name}](../../examples/{path.name})\n\n"


def plain(text: str) -> str:
    """Convert plain text of a docstring to Markdown, on one line."""
    text = re.sub(r"\s+", " ", text)
    return "".join(
        piece if i % 2 else re.sub(r"([\\*_\[\]<>$|])", r"\\\1", piece)
        for i, piece in enumerate(re.split(r"(`[^`]+`)", text))
    )


# --------------------------------------------------------------------------------- pages of the repository

COPIED = {
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "README.md": "project/readme.md",
    "examples/README.md": "gallery/examples.md",
}
COPIED |= {f"benchmarks/{path.name}": f"project/benchmarks-{path.name}" for path in (ROOT / "benchmarks").glob("*.md")}
COPIED |= {
    path.relative_to(ROOT).as_posix(): "course/kit-" + path.relative_to(ROOT / "course").as_posix().replace("/", "-")
    for path in sorted((ROOT / "course").rglob("*.md"))
}
"""{page of the repository: its copy on the site}. Links in a copy are changed to lead to the same files."""


def copied(source: str, target: str) -> None:
    """Copy a page of the repository to the site and adapt its links. Raises FileNotFoundError for a broken link."""
    home, page = (ROOT / source).parent, DOCS / target

    def link(found: re.Match[str]) -> str:
        path, mark, anchor = found[1].partition("#")
        if re.match(r"[a-z]+:", path) or not path:
            return found[0]
        name = (home / path).resolve().relative_to(ROOT).as_posix()
        if not (ROOT / name).exists():
            raise FileNotFoundError(f"{source} links to {name}, which is not there")
        to = DOCS / COPIED[name] if name in COPIED else ROOT / name
        return f"]({os.path.relpath(to, page.parent)}{mark}{anchor})"

    text = (ROOT / source).read_text(encoding="utf-8")
    if source.endswith("/handout.md"):
        text = as_handed_out(ROOT / source, text)
    written(page, re.sub(r"\]\(([^)\s]+)\)", link, text))


def as_handed_out(path: Path, text: str) -> str:
    """Return a handout in the variant of the seed "public", with a note that classes get other variants."""
    sys.path.insert(0, str(ROOT / "course"))
    try:
        handout = importlib.import_module("build").handout
    finally:
        sys.path.remove(str(ROOT / "course"))
    variant = load(path.parent).variant("public")
    chosen = ", ".join(f"{name} {choice}" for name, choice in variant.items())
    title, _, rest = handout(text, variant).partition("\n")
    chapters = [
        page for page in sorted((DOCS / "notes").glob("[1-6]-*.md")) if f"/{path.parent.name}/" in page.read_text()
    ]
    notes = " and ".join(f"[chapter {page.name[0]} of the notes](../../docs/notes/{page.name})" for page in chapters)
    told = f"One variant of several: {chosen}. Each student of a class gets another one. The reasons are in {notes}."
    return f"{title}\n\n```{{note}}\n{told}\n```\n{rest}"


def notebooks() -> None:
    """Write course/kit-notebooks.md with links to all notebooks of course/ and, for a project on GitHub, to Colab."""
    source = (
        tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"].get("urls", {}).get("Source")
    )
    github = re.match(r"https://github.com/([\w-]+/[\w.-]+)", source or "")
    text = "# Notebooks\n\n[Run it elsewhere](../guide/elsewhere.md) says how to open them without an installation.\n\n"
    found = sorted((ROOT / "course").rglob("*.ipynb"))
    for path in found:
        name = path.relative_to(ROOT).as_posix()
        text += f"- [{name}]({os.path.relpath(path, DOCS / 'course')})"
        if github:
            text += f", [on Colab](https://colab.research.google.com/github/{github[1]}/blob/main/{name})"
        text += "\n"
    if found:
        written(DOCS / "course" / "kit-notebooks.md", text)


# ----------------------------------------------------------------------------------------------- Sphinx


def on_start(app: Any, config: Any) -> None:
    """Write all generated pages. Sphinx calls this once it has read its configuration."""
    config.autosummary_filename_map = filenames()
    app.minintk_exported = exported()
    internals()
    names()
    gallery()
    for source, target in COPIED.items():
        copied(source, target)
    notebooks()


def on_source(app: Any, page: str, source: list[str]) -> None:
    """Redirect links to copied pages to their copies on the site. Sphinx calls this for each page that it reads."""
    home = (DOCS / page).parent

    def link(found: re.Match[str]) -> str:
        target = (home / found[1]).resolve()
        name = target.relative_to(ROOT).as_posix() if target.is_relative_to(ROOT) else ""
        return f"]({os.path.relpath(DOCS / COPIED[name], home)})" if name in COPIED else found[0]

    source[0] = re.sub(r"\]\(((?:\.\./)+[^)\s]+\.md)\)", link, source[0])


def on_page(app: Any, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """Remove the links from source code back to the documentation. Sphinx calls this for each page that it writes.

    Such a link leads to the name in the defining module, `minintk.models.empirical.ntk`, not to `minintk.ntk`.
    """
    if page.startswith("_modules/") and "body" in context:
        context["body"] = re.sub(r'<a class="viewcode-back".*?</a>', "", context["body"])


def on_collect(app: Any) -> list[Any]:
    """Omit modules without source code, such as `builtins`. Sphinx calls this before it writes pages of source code."""
    listed = getattr(app.env, "_viewcode_modules", {})
    for name in [name for name, entry in listed.items() if not entry]:
        del listed[name]
    return []


def setup(app: Any) -> dict[str, bool]:
    """Register the extension. Sphinx calls this."""
    app.connect("config-inited", on_start)
    app.connect("source-read", on_source)
    app.connect("autodoc-skip-member", on_skip)
    app.connect("html-page-context", on_page)
    app.connect("html-collect-pages", on_collect, priority=400)  # before sphinx.ext.viewcode, at 500
    return {"parallel_read_safe": True, "parallel_write_safe": True}
