"""Define the directive `scene`: a recorded scene of docs/scenes with sliders, drawn by Plotly in the browser.

A page contains the record as JSON, and plotly.js is copied from the Python package, so pages need no other server.
"""

from importlib.resources import files
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive

SCENES = Path(__file__).resolve().parents[1] / "scenes"
SCRIPTS = "plotly.min.js", "scenes.js"


class Scene(Directive):
    """The directive `{scene} NAME`, which inserts the record docs/scenes/NAME.json and a caption."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return a node with the record as HTML, and the nodes of the caption."""
        name = self.arguments[0]
        record = SCENES / f"{name}.json"
        self.state.document.settings.env.note_dependency(str(record))
        text = record.read_text(encoding="utf-8").strip()
        caption = nodes.paragraph("", "", classes=["scene-caption"])
        self.state.nested_parse(self.content, self.content_offset, caption)
        html = f'<div class="scene" data-scene="{name}"><script type="application/json">{text}</script></div>'
        return [nodes.raw("", html, format="html"), *caption.children]


def on_page(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Add the scripts to a page if it contains a scene."""
    if doctree is not None and any('class="scene"' in node.astext() for node in doctree.findall(nodes.raw)):
        for name in SCRIPTS:
            app.add_js_file(name, loading_method="defer")


def on_built(app: Any, error: Exception | None) -> None:
    """Copy plotly.js from its Python package to the site."""
    if error is None and app.builder.format == "html":
        script = files("plotly") / "package_data" / SCRIPTS[0]
        (Path(app.outdir) / "_static" / SCRIPTS[0]).write_bytes(script.read_bytes())


def setup(app: Any) -> dict[str, bool]:
    """Register the extension. Sphinx calls this."""
    app.add_directive("scene", Scene)
    app.connect("html-page-context", on_page)
    app.connect("build-finished", on_built)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
