"""Test the project as a whole: the cost of imports, imports between packages, docstrings, names, and pages' code."""

import ast
import importlib
import importlib.util
import inspect
import pkgutil
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("minintk", "analytic")
ABOUT_BOTH = set[str]()


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def imports(code: str) -> set[str]:
    """Return the top-level names of all modules that the code imports, including import_module("...")."""
    names = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(node.module or "")
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module") and node.args:
            names.add(ast.unparse(node.args[0]).strip("'\"f"))
    return {name.partition(".")[0] for name in names}


def test_imports_finds_every_way_to_import() -> None:
    code = "import a.b\nfrom c.d import e\ndef f():\n import g as h\n importlib.import_module('i.j')\n"
    code += " import_module(f'k.{l}')"
    assert imports(code) == {"a", "c", "g", "i", "k"}


def test_no_download_is_in_the_repository() -> None:
    """No file exceeds 512 KiB. A wheel of 2.9 MB was once committed. The largest legitimate file is 240 kB."""
    git = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if git.returncode:
        pytest.skip("this is no checkout")
    files = [ROOT / name for name in git.stdout.split("\0") if name]
    assert [path.name for path in files if path.is_file() and path.stat().st_size > 2**19] == []


# -------------------------------------------------------------------------------------------- importing


def fresh(code: str) -> str:
    """Run the code in a new Python process, and return the output."""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_pulls_in_nothing_heavy() -> None:
    """Importing the packages loads no package for plots, GPUs, the terminal, downloads or machine learning."""
    heavy = ["matplotlib", "cupy", "numba", "rich", "pooch", "sklearn", "pandas", "requests"]
    heavy += ["scipy.stats", "scipy.optimize", "scipy.integrate", "scipy.interpolate", "scipy.sparse", "scipy.spatial"]
    code = f"import sys, minintk, analytic; print(*[name for name in {heavy} if name in sys.modules])"
    assert fresh(code).split() == []


def test_importing_is_cheap_beside_numpy() -> None:
    """Count function calls. Importing both packages takes about 6 % as many as importing NumPy."""
    code = """
import sys
calls = [0]
def count(*_):
    calls[0] += 1
sys.setprofile(count)
import numpy
of_numpy = calls[0]
import {}
print(calls[0] / of_numpy - 1)
"""
    assert float(fresh(code.format("minintk, analytic"))) < 0.2 < float(fresh(code.format("scipy.optimize")))


def test_pytest_leaves_out_the_modules_that_need_an_extra() -> None:
    """NEEDS lists exactly the modules that need an extra, so that pytest collects doctests without any extras."""
    listed = set[str]()
    for package in PACKAGES:
        needs = importlib.import_module(f"{package}.conftest").NEEDS
        listed |= {f"{package}.{name.removesuffix('.py').replace('/', '.')}" for name in needs}
    code = f"""
import importlib, pkgutil, sys
sys.modules.update(dict.fromkeys(["cupy", "llvmlite", "numba", "pandas", "pooch", "sklearn"]))  # as if not installed
for package in map(importlib.import_module, {PACKAGES}):
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not found.name.endswith("__main__"):
            try:
                importlib.import_module(found.name)
            except ImportError:
                print(found.name)
"""
    assert set(fresh(code).split()) == listed


# ---------------------------------------------------------------------------------------------- layers


def test_minintk_does_not_import_analytic() -> None:
    for path in sources("minintk"):
        code = path.read_text(encoding="utf-8")
        if "analytic" in code and path.relative_to(ROOT).as_posix() not in ABOUT_BOTH:
            assert "analytic" not in imports(code), path


def test_the_command_line_imports_analytic_only_when_it_runs() -> None:
    """`import minintk` must import neither `analytic` nor the command line."""
    assert fresh("import sys, minintk; print('analytic' in sys.modules, 'minintk.lab.cli' in sys.modules)").split() == [
        "False",
        "False",
    ]


def test_one_module_names_cupy() -> None:
    for path in sources(*PACKAGES):
        code = path.read_text(encoding="utf-8")
        if "cupy" in code and path.name != "arrays.py":
            names = {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}
            assert not {"cupy", "cupyx"} & (names | imports(code)), path


def test_derivatives_are_written_by_hand() -> None:
    frameworks = {"autograd", "jax", "torch", "tensorflow", "theano", "casadi", "neural_tangents"}
    for path in sources(*PACKAGES, "examples"):
        lifted = {"torch"} if path.stem == "lift_from_torch" else set()  # the lifted model comes from torch
        code = path.read_text(encoding="utf-8")
        if any(name in code for name in frameworks):
            assert not (frameworks - lifted) & imports(code), path


@pytest.mark.slow  # lint type-checks all code that uses arrays
def test_a_type_checker_knows_what_an_array_has() -> None:
    code = "import numpy as np\nimport minintk as mn\ndef f(a: mn.Array) -> None:\n    a.shpae\nf(np.ones(3))\n"
    cache = ROOT / ".mypy_cache" / "typed"  # from the second run on, a twentieth of the time
    said, *_ = pytest.importorskip("mypy.api").run(["--config-file=", f"--cache-dir={cache}", "-c", code])
    assert re.search(r'has no attribute "shpae".*\nFound 1 error', said), said


# ------------------------------------------------------------------------------------------ docstrings


def modules() -> Iterator[ModuleType]:
    for extra in ("llvmlite", "sklearn"):
        pytest.importorskip(extra, reason="some modules need it")
    for package in map(importlib.import_module, PACKAGES):
        yield package
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.endswith("__main__"):
                yield importlib.import_module(found.name)


def undocumented(module: ModuleType) -> Iterator[str]:
    """Yield names of public classes and functions, and of methods of exported classes, that have no docstring."""
    exported = module.__name__ in (*PACKAGES, "minintk.datasets")
    for name, thing in vars(module).items():
        home = getattr(thing, "__module__", None) or ""
        if name.startswith("_") or not callable(thing) or (home != module.__name__ and not exported):
            continue
        if home.partition(".")[0] in PACKAGES and not inspect.getdoc(thing):
            yield f"{module.__name__}.{name}"
        if exported and inspect.isclass(thing) and name != "Array":  # the methods of Array are NumPy's
            for attribute, value in vars(thing).items():
                method = inspect.isfunction(value) or isinstance(value, property | classmethod | staticmethod)
                if method and not attribute.startswith("_") and not inspect.getdoc(getattr(thing, attribute)):
                    yield f"{module.__name__}.{name}.{attribute}"


def test_everything_public_has_a_docstring() -> None:
    assert [name for module in modules() for name in undocumented(module)] == []
    assert [module.__name__ for module in modules() if not module.__doc__] == []


WITHOUT_EXAMPLE = {"minintk.datasets.mnist", "minintk.datasets.cifar10"}  # functions that read files


def test_every_public_function_shows_an_example() -> None:
    """Every public function has a doctest, except those that read files."""
    silent = set()
    for name in (*PACKAGES, "minintk.diagnostics", "minintk.datasets", "minintk.spec.zoo"):
        package = importlib.import_module(name)
        for exported in getattr(package, "__all__", vars(package)):
            thing = getattr(package, exported)
            if callable(thing) and not inspect.isclass(thing) and getattr(thing, "__name__", "_")[0] != "_":
                silent |= {f"{name}.{exported}"} if ">>>" not in (inspect.getdoc(thing) or "") else set()
    assert silent == WITHOUT_EXAMPLE


def test_a_missing_docstring_is_found() -> None:
    module = ModuleType("minintk.datasets", "A module.")
    exec(  # a class with an undocumented second method, and an undocumented function
        "class Good:\n 'It is.'\n def yes(self):\n  'It does.'\n def no(self): return 1\ndef mute(): return 1",
        vars(module),
    )
    assert set(undocumented(module)) == {"minintk.datasets.Good.no", "minintk.datasets.mute"}


# ---------------------------------------------------------------------------------------- README, packaging


def readme() -> str:
    path = ROOT / "README.md"
    if not path.exists():
        pytest.skip("there is no README.md in this tree (an installed package, say), so none of its code to run")
    return path.read_text(encoding="utf-8")


def test_readme_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run all ```python blocks of the README in order in one namespace, as a reader would type them."""
    blocks = re.findall(r"^```python\n(.*?)^```", readme(), re.MULTILINE | re.DOTALL)
    assert blocks, "README.md shows no Python code"
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "readme"}
    for number, block in enumerate(blocks):
        exec(compile(block, f"README.md, Python block {number + 1}", "exec"), namespace)


SLOW = {"lazy", "mup", "reference/examine", "scikit-learn", "training"}
CODE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
WRITTEN_BY_THE_BUILD = re.compile(r"docs/(gallery/|course/kit-|project/(readme|changelog|contributing|benchmarks))")
PAGES = {path.relative_to(ROOT / "docs").with_suffix("").as_posix(): path for path in (ROOT / "docs").rglob("*.md")}
PAGES = {name: path for name, path in PAGES.items() if not WRITTEN_BY_THE_BUILD.match(f"docs/{name}")}
GUIDES = sorted(name for name, path in PAGES.items() if CODE.search(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in GUIDES])
def test_code_of_the_guides_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run all ```python blocks of a page in docs/ in order in one namespace."""
    if name == "scikit-learn":
        pytest.importorskip("sklearn", reason="needs the extra sklearn")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT / "examples"))  # for a script of a paper
    namespace: dict[str, object] = {"__name__": "guide"}
    for block in CODE.findall(PAGES[name].read_text(encoding="utf-8")):
        exec(compile(block, str(PAGES[name]), "exec"), namespace)


def test_pages_with_code_are_found() -> None:
    assert not PAGES or {"lazy", "limits", "mup", "training", "guide/neural-tangents"} <= set(GUIDES)


def test_readme_names_commands_that_exist() -> None:
    sys.path.insert(0, str(ROOT))
    try:
        commands = {*importlib.import_module("make").COMMANDS, "clean"}
    finally:
        sys.path.remove(str(ROOT))
    named = re.findall(r"make\.py ([a-z-]+)", readme())
    assert {"verify", "test"} <= set(named) <= commands
    targets = re.search(r"^COMMANDS := (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert targets
    assert set(targets[1].split()) == commands - {"python"}


# ------------------------------------------------------------------------------------- what the words name

ABBREVIATED = {"mn": "minintk", "an": "analytic", "minintk": "minintk", "analytic": "analytic"}
DOTTED = re.compile(r"(?<![\w./])(mn|an|minintk|analytic)((?:\.[A-Za-z_]\w*)+)")
FILE = re.compile(r"(?<![\w./-])((?:minintk|analytic|tests|examples|benchmarks|docs)/[\w/.-]*\w)")
SUFFIXES = {".py", ".md", ".npz", ".png", ".html", ".json"}  # minintk.py in a sentence is a file, not a name


def prose() -> Iterator[tuple[str, str]]:
    """Yield (file, text) for every page, and for every docstring of both packages."""
    pages = [ROOT / name for name in ("README.md", "CONTRIBUTING.md")]
    pages += [path for folder in ("docs", "examples", "benchmarks") for path in sorted((ROOT / folder).rglob("*.md"))]
    for page in pages:
        if page.name == "release.md":  # quotes the last lines of logs; no row of a release may depend on this page
            continue
        if page.exists() and not WRITTEN_BY_THE_BUILD.match(page.relative_to(ROOT).as_posix()):
            yield page.relative_to(ROOT).as_posix(), page.read_text(encoding="utf-8")
    for path in sources(*PACKAGES):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                yield path.relative_to(ROOT).as_posix(), ast.get_docstring(node) or ""


def mro(thing: object) -> tuple[object, ...]:
    return thing.__mro__ if inspect.isclass(thing) else ()


def exists(package: str, path: str) -> bool:
    """Return True if package.path is a module or an attribute of a module, including fields of dataclasses."""
    thing: object = importlib.import_module(package)
    for name in path.split("."):
        if inspect.ismodule(thing) and not hasattr(thing, name):
            try:
                importlib.import_module(f"{thing.__name__}.{name}")
            except ImportError:  # or a style, which Matplotlib finds in a package
                return any((Path(home) / f"{name}.mplstyle").exists() for home in getattr(thing, "__path__", ()))
        elif not any(hasattr(c, name) or name in getattr(c, "__annotations__", {}) for c in (thing, *mro(thing))):
            return False
        thing = getattr(thing, name, None)
    return True


def test_every_name_in_the_documentation_exists() -> None:
    pytest.importorskip("sklearn", reason="the estimators are among them")
    missing = set()
    for where, text in prose():
        for package, path in DOTTED.findall(text):
            if f".{path.rpartition('.')[2]}" not in SUFFIXES and not exists(ABBREVIATED[package], path[1:]):
                missing.add((where, package + path))
        for name in FILE.findall(text):
            if (ROOT / "README.md").exists() and not (ROOT / name).exists() and not list(ROOT.glob(f"{name}*")):
                missing.add((where, name))
    assert missing == set()


def test_a_name_that_is_none_is_found() -> None:
    assert DOTTED.findall("`mn.Network.init`, man.ual, an.kernel(x).") == [("mn", ".Network.init"), ("an", ".kernel")]
    assert exists("minintk", "training.train.Snapshot.loss")
    assert exists("minintk", "Network.layout")
    assert exists("analytic", "verify.claims")
    assert not exists("minintk", "Network.initialise")
    assert not exists("analytic", "nothing.at_all")


REFERENCE = re.compile(r"^(?:\.\. auto\w+:: |   )((?:minintk|analytic)[\w.]*)$", re.MULTILINE)


def test_every_public_name_is_in_the_reference() -> None:
    pages = sorted((ROOT / "docs" / "reference").glob("*.md"))
    if not pages:
        pytest.skip("there are no docs in this tree (an installed package, say)")
    shown = {name for page in pages for name in REFERENCE.findall(page.read_text(encoding="utf-8"))}
    for package in map(importlib.import_module, PACKAGES):
        for name in package.__all__:
            thing = getattr(package, name)
            home = thing.__name__ if inspect.ismodule(thing) else f"{package.__name__}.{name}"
            assert home in shown, f"{home} stands on no page of docs/reference"


def test_the_version_is_one_and_has_a_place_in_the_changelog() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert f"## [{version}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert version == importlib.import_module("minintk").__version__
    if (ROOT / "CITATION.cff").exists():
        assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
