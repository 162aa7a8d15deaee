"""Typeset the notes and the handouts as PDF files. Pandoc converts Markdown to typst, and typst writes the PDF.

    python3 make.py python docs/notes/pdf.py OUT [--seed SEED]

Both tools are Python packages in the extra `docs` (pypandoc-binary and typst).  The script writes the six chapters to
OUT/notes.pdf and each handout to OUT/hwN_name.pdf, in the variant that belongs to SEED ("public" by default).
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

import pypandoc
import typst

NOTES = Path(__file__).resolve().parent
COURSE = NOTES.parents[1] / "course"
sys.path.insert(0, str(COURSE))
CHAPTERS = sorted(NOTES.glob("[1-6]-*.md"))

LOOK = """
#set page(paper: "a4", margin: (x: 2.6cm, y: 2.4cm), numbering: "1")
#set text(font: ("New Computer Modern", "Libertinus Serif"), size: 11pt, lang: "en")
#set par(justify: true, leading: 0.62em)
#set table(stroke: (x, y) => if y == 0 { (bottom: 0.6pt) }, inset: (x: 0.5em, y: 0.35em))
#set figure(numbering: none)
#show table: set par(justify: false)
#show table: set text(hyphenate: false)
#show figure: set block(breakable: false)
#show figure.caption: set text(size: 9pt)
#show heading.where(level: 1): it => { pagebreak(weak: true); text(size: 20pt, it); v(0.6em) }
#show heading.where(level: 2): it => { v(0.6em); it; v(0.2em) }
#show raw: set text(font: "DejaVu Sans Mono", size: 8.5pt)
#let vbar = math.class("normal", sym.bar.v)
#let horizontalrule = line(length: 100%)
#let statement(title, body) = block(
  width: 100%, fill: luma(244), inset: 0.8em, radius: 2pt, above: 1em, below: 1em, breakable: false,
  [#strong[#title.] #body],
)
"""

FIGURE = re.compile(r"^```\{figure\} (\S+)\n:alt: [^\n]*\n\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
BOX = re.compile(r"^:::\{admonition\} ([^\n]*)\n(.*?)^:::\n", re.MULTILINE | re.DOTALL)
NOTE = re.compile(r"^```\{note\}\n(.*?)^```\n", re.MULTILINE | re.DOTALL)


def to_typst(text: str) -> str:
    """Convert a page of the site to typst, and remove its links to other pages."""
    text = re.sub(r"(?<!!)\[([^\]]+)\]\((?!https?:)[^)]*\)", r"\1", text)
    text = FIGURE.sub(figure, text)
    text = NOTE.sub(lambda m: f"*{m[1].strip()}*\n", text)
    kind = "markdown-implicit_header_references-citations"
    boxes: list[str] = []

    def kept(m: re.Match[str]) -> str:
        body = pypandoc.convert_text(m[2], "typst", format=kind)
        title = pypandoc.convert_text(m[1], "typst", format=kind).strip()
        boxes.append(f"#statement[{title}][\n{body}]\n")
        return f"\nBOX{len(boxes) - 1}BOX\n"

    found = pypandoc.convert_text(BOX.sub(kept, text), "typst", format=kind)
    found = re.sub(r"BOX(\d+)BOX", lambda m: boxes[int(m[1])], found)
    found = found.replace("#h(0em)", "thick")  # pandoc's thick space; it would cancel the space that a relation has
    # Pandoc's bar \| is a relation, whose spaces look wrong around norms, so `vbar` replaces it. A large bar [\|] is
    # kept. No space may remain at the end of a formula; typst would display that formula on its own line.
    found = re.sub(r"(?<!\[)\\\| *(?=[\^_])", "vbar", found)
    found = re.sub(r"(?<!\[)\\\|(?=\w)", "vbar ", found)
    return re.sub(r"(?<!\[)\\\|", "vbar", re.sub(r"(?<=\w)\\\|", " vbar", found))


def figure(found: re.Match[str]) -> str:
    """Return the Markdown of a captioned image, as wide as the text if over 400 units wide, otherwise 66 % as wide."""
    size = re.search(r'viewBox="0 0 (\d+)', (NOTES / found[1]).read_text(encoding="utf-8"))
    width = "100%" if size and int(size[1]) > 400 else "66%"
    return f"![{' '.join(found[2].split())}]({found[1]}){{width={width}}}\n"


def compiled(parts: list[str], title: str, path: Path) -> None:
    """Typeset the parts, written in typst, as one PDF file with the given title."""
    head = f'#set document(title: "{title}")\n'
    source = NOTES / f".{path.stem}.typ"  # in the figures' folder, because paths are relative
    source.write_text(head + LOOK + "\n\n".join(parts), encoding="utf-8")
    try:
        typst.compile(str(source), output=str(path), root=str(NOTES))
    finally:
        source.unlink()


def main(arguments: list[str] | None = None) -> None:
    """Write the PDF files to the folder given in `arguments`."""
    from build import folders, handout
    from minintk.grade import load

    parser = argparse.ArgumentParser(prog="docs/notes/pdf.py", description="Typeset notes and handouts.")
    parser.add_argument("out", type=Path, metavar="OUT", help="a folder, made if it is missing")
    parser.add_argument("--seed", default="public", help="of the handouts' variant (public)")
    args = parser.parse_args(arguments)
    args.out.mkdir(parents=True, exist_ok=True)
    contents = (
        "#align(center)[#text(size: 24pt)[Wide neural networks] #v(0.5em) Notes to a course in six assignments]\n"
    )
    contents += "#v(2em)\n#outline(title: none, depth: 1)\n"
    chapters = [to_typst(path.read_text(encoding="utf-8")) for path in CHAPTERS]
    compiled([contents, *chapters], "Wide neural networks", args.out / "notes.pdf")
    for folder in folders():
        text = handout((folder / "handout.md").read_text(encoding="utf-8"), load(folder).variant(args.seed))
        compiled([to_typst(text)], text.partition("\n")[0].lstrip("# "), args.out / f"{folder.name}.pdf")
    for path in sorted(args.out.glob("*.pdf")):
        print(path)


if __name__ == "__main__":
    main()
