// Minintk in Pyodide, under Node:  npm install pyodide; node docs/notebooks/pyodide.mjs
//
// Compiles both packages for Pyodide's Python and imports what they take from the standard library.  Then it fetches NumPy,
// SciPy and the other packages from Pyodide's server and runs the thirty lines; where the server cannot be reached, it says so.
import { readdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "../..");
const started = Date.now();
const seconds = () => `${((Date.now() - started) / 1000).toFixed(1)} s`;

const here = createRequire(join(process.cwd(), "package.json"));
const { loadPyodide } = here("pyodide");
const py = await loadPyodide();
console.log(`Pyodide ${py.version}, ready after ${seconds()}`);

for (const name of ["minintk", "analytic"])
  for (const entry of readdirSync(join(root, name), { recursive: true, withFileTypes: true })) {
    const path = join(entry.parentPath, entry.name);
    if (!entry.isFile() || path.includes("__pycache__")) continue;
    const to = `/lib/own/${relative(root, path)}`;
    py.FS.mkdirTree(dirname(to));
    py.FS.writeFile(to, readFileSync(path));
  }
py.globals.set("thirty_lines", readFileSync(join(root, "README.md"), "utf8").split("```python\n")[1].split("```")[0]);

py.runPython(`
import ast, contextlib, importlib, sys, types
from pathlib import Path

sys.path.insert(0, "/lib/own")
needed, count = set(), 0
for path in Path("/lib/own").rglob("*.py"):
    tree = ast.parse(path.read_text(), str(path))
    compile(tree, str(path), "exec")
    count += 1
    for node in tree.body:  # what an import of the module imports
        if isinstance(node, ast.Import):
            needed |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            needed.add(node.module)
standard = sorted(name for name in needed if name.partition(".")[0] in sys.stdlib_module_names)
for name in standard:
    importlib.import_module(name)
print(f"{count} modules compile with Python {sys.version.split()[0]}, and {len(standard)} of the standard library are there")

package, machine = types.ModuleType("minintk"), types.ModuleType("minintk.cores")  # the real ones need NumPy
package.__path__, machine.cores = ["/lib/own/minintk"], lambda: 4
sys.modules |= {"minintk": package, "minintk.cores": machine}
threads = importlib.import_module("minintk.threads")
threads.single_threaded_blas = contextlib.nullcontext
assert threads.parallel(lambda i: i * i, range(9)) == [i * i for i in range(9)]
print("the pool, told of four cores, does without threads")
for name in [name for name in sys.modules if name.partition(".")[0] == "minintk"]:
    del sys.modules[name]
`);
console.log(`after ${seconds()}`);

const quiet = { messageCallback: () => {}, errorCallback: () => {} };
try {
  await py.loadPackage(["numpy", "scipy", "matplotlib", "rich", "jinja2", "lazy-loader", "threadpoolctl", "micropip"], quiet);
  await py.runPythonAsync(`import micropip; await micropip.install(["array-api-compat", "filelock"])`);
} catch (error) {
  console.log("NumPy, SciPy or micropip could not be fetched from Pyodide's server: the thirty lines have not run.");
  console.log(String(error).trim().split("\n").at(-1));
  process.exit(3);
}
await py.runPythonAsync("exec(compile(thirty_lines, 'README.md', 'exec'), {})");
console.log(`thirty lines done after ${seconds()}`);
process.exit(0);
