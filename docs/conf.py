"""Configure Sphinx for `python3 make.py docs`; project/site.md gives the reasons."""

import sys
import tomllib
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path[:0] = [str(DOCS.parent), str(DOCS / "_ext")]  # for the packages and this folder's extensions

PROJECT = tomllib.loads((DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]

project = "minintk"
author = "The minintk authors"
copyright = author
release = version = PROJECT["version"]

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",  # a local copy of MathJax, so that pages load no script from other sites
    "myst_nb",  # MyST Markdown, and notebooks in it
    "sphinx_copybutton",
    "sphinx_design",
    "docstrings",
    "pages",
    "scenes",
]
exclude_patterns = ["_ext", "_templates"]
templates_path = ["_templates"]
root_doc = "index"
smartquotes = False  # keep straight primes: J' is a transpose, phi' a derivative
source_suffix = {".rst": "restructuredtext", ".md": "myst-nb"}  # .rst first: autosummary writes in this format

# Markdown, with formulas between dollar signs
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "attrs_inline", "deflist"]
myst_heading_anchors = 3
myst_dmath_double_inline = True

# run the notebooks at every build, because outdated figures would be worse than no figures
nb_execution_mode = "force"
nb_execution_timeout = 600
nb_execution_raise_on_error = True
nb_merge_streams = True
nb_output_stderr = "show"
nb_code_prompt_show = "Show one way to do it"
nb_code_prompt_hide = "Hide it"

# generate the reference from the docstrings
autosummary_generate = True
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
autodoc_preserve_defaults = True
add_module_names = False
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
toc_object_entries_show_parents = "hide"
viewcode_line_numbers = True
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_exclude = ".linenos, .gp, .go"

# appearance
html_theme = "pydata_sphinx_theme"
html_title = "minintk"
html_static_path = ["_static"]
html_logo = html_favicon = "_static/logo.svg"
html_css_files = ["site.css"]
html_search_scorer = str(DOCS / "_static" / "scorer.js")
html_show_sourcelink = False
html_copy_source = False
html_sidebars = {page: list[str]() for page in ("gallery/index", "papers/*", "scenes")}
html_sidebars["course/index"] = ["sidebar-nav-bs"]
html_context = {"default_mode": "auto"}
html_theme_options = {
    "logo": {"text": "minintk"},
    "navbar_align": "left",
    "navigation_with_keys": False,
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
