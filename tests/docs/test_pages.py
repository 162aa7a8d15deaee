"""Test the text of the pages of site/: no broken links, no invalid tags, and no markup left in the text."""

import os
import re
from collections.abc import Iterator
from functools import cache
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.kit.built_site import ROOT, SITE, pages

VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
KNOWN = VOID | {
    *(
        "a",
        "abbr",
        "article",
        "b",
        "blockquote",
        "button",
        "caption",
        "cite",
        "code",
        "colgroup",
        "dd",
        "details",
        "div",
    ),
    *("dl", "dt", "em", "figcaption", "figure", "form", "h1", "h2", "h3", "h4", "h5", "h6", "i", "kbd", "label", "li"),
    *(
        "math",
        "nav",
        "ol",
        "p",
        "path",
        "pre",
        "s",
        "samp",
        "script",
        "section",
        "small",
        "span",
        "strong",
        "sub",
        "summary",
    ),
    *("sup", "svg", "table", "tbody", "td", "tfoot", "th", "thead", "tr", "ul", "var"),
}
LEFT_OVER = re.compile(
    r"</?(?:a|b|br|code|div|em|li|p|pre|span|strong|t[dhr]|table|u|ul)(?:\s+[\w-]+=[^<>]*)?\s*/?>"  # a tag
    r"|&(?:lt|gt|amp|quot|#\d+);|:[a-z]+:(?:[a-z]+:)?`|`[^`]+`|```|^::: |\.\. [a-z-]+::|\]\([\w./#-]+\)|\$[^$]*\\[a-z]+"
)


class Article(HTMLParser):
    """A parser that collects unknown tags and markup left in the text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.strange: list[str] = []
        self.left_over: list[str] = []
        self.inside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in KNOWN:
            self.strange.append(tag)
        if tag not in VOID:
            self.inside.append("math" if "math" in (dict(attrs).get("class") or "").split() else tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID and self.inside:
            self.inside.pop()

    def handle_data(self, data: str) -> None:
        if not {"pre", "code", "script", "math"} & set(self.inside):
            self.left_over += LEFT_OVER.findall(data)


def articles() -> Iterator[tuple[str, Article]]:
    """Yield (name, parsed article) for each page, without the page's navigation.

    Source listings are excluded because they are one long <pre>.
    """
    for path in pages():
        if "_modules" not in path.parts:
            found = re.search(r"<article.*</article>", path.read_text(encoding="utf-8"), re.DOTALL)
            if found:
                yield path.relative_to(SITE).as_posix(), Article(found[0])


@cache
def places(path: Path) -> frozenset[str]:
    """Return the anchors of a page, which links may refer to after the `#`."""
    return frozenset(re.findall(r'\s(?:id|name)="([^"]+)"', path.read_text(encoding="utf-8")))


def broken(path: Path) -> Iterator[str]:
    """Yield those links of a page whose target, or whose anchor in the target, does not exist on the site."""
    for link in re.findall(r'\s(?:href|src)="([^"]*)"', path.read_text(encoding="utf-8")):
        parts = urlsplit(unescape(link))
        if parts.scheme or parts.netloc or link == "#":
            continue
        target = path if not parts.path else Path(os.path.normpath(path.parent / unquote(parts.path)))
        if not exists(target):
            yield f"{path.relative_to(SITE)}: {link}"
        elif parts.fragment and target.suffix == ".html" and unquote(parts.fragment) not in places(target):
            yield f"{path.relative_to(SITE)}: {link} (no such place on that page)"


@cache
def exists(path: Path) -> bool:
    return path.exists()


def test_no_link_is_broken() -> None:
    read = [path for path in pages() if "_modules" not in path.parts or path.name == "index.html"]  # code has no links
    found = [link for path in read for link in broken(path)]
    assert found == []


def test_no_tag_is_made_of_words_and_no_markup_is_left() -> None:
    found = dict(articles())
    strange = {f"{name}: <{tag}>" for name, article in found.items() for tag in article.strange}
    left = {f"{name}: {text}" for name, article in found.items() for text in article.left_over}
    assert len(found) > 100
    assert strange == set()
    assert left == set()


def test_the_laws_of_the_planted_errors_can_be_read() -> None:
    """`<u, J v>` is shown as text. This text was once parsed as a tag for underlining."""
    source = (ROOT / "docs" / "planted-errors.md").read_text(encoding="utf-8")
    shown = (SITE / "planted-errors.html").read_text(encoding="utf-8") if pages() else ""
    assert source.count("<u, J v>") == shown.count("&lt;u, J v&gt;") > 20


@pytest.mark.parametrize(
    ("text", "tags", "words"),
    [
        ("<p><u, J v> = 1</p>", ["u,"], []),
        ("<p>&lt;u, J v&gt; = 1</p>", [], []),
        ("<p>&lt;td&gt; of a table</p>", [], ["<td>"]),
        ("<p>a &amp;lt; b</p>", [], ["&lt;"]),
        ("<p>:py:obj:`x`</p>", [], [":py:obj:`"]),
        ("<p>[text](page.md)</p>", [], ["](page.md)"]),
        (r"<p>$\alpha$</p>", [], [r"$\alpha"]),
        ("<pre>`code`, &lt;td&gt;</pre>", [], []),
    ],
)
def test_what_is_wrong_is_found(text: str, tags: list[str], words: list[str]) -> None:
    found = Article(text)
    assert found.strange == tags
    assert found.left_over == words


def test_a_broken_link_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.docs.test_pages.SITE", tmp_path)
    (tmp_path / "a.html").write_text(
        '<p id="x"><a href="a.html#x">1</a><a href="a.html#y">2</a><a href="b.html">3</a></p>'
    )
    assert [link.rpartition(": ")[2][:8] for link in broken(tmp_path / "a.html")] == ["a.html#y", "b.html"]
