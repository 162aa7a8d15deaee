"""A submission that answers calls: in a process of its own, or in this one where processes cannot start.

`Submission.call` raises SubmissionError, with a line that a student can use, for whatever goes wrong in there: an
exception, a time limit, a process that died, a value that cannot be passed on.
"""

from __future__ import annotations

import copy
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from threading import Timer
from types import ModuleType
from typing import Any

from minintk.grade import worker

REFUSED = ("analytic", "minintk", "jax", "torch", "tensorflow", "autograd", "neural_tangents", "cupy")
"""What a submission may not import, unless its assignment allows it: they hold answers, or trace derivatives."""


class SubmissionError(Exception):
    """What went wrong inside a submission, in one line."""


class GraderError(RuntimeError):
    """What is wrong on the grader's side, with a case or with the machine: the instructor's to mend."""


@dataclass(eq=False)
class Submission(AbstractContextManager["Submission"]):
    """A student's file, which is run at the first call; a context manager that ends its process.

    path : the file.  variant : what `from variant import ...` gives it.  isolated : a process of its own, with an
    import guard and limits; False runs it here.  seconds : for one call.  memory : bytes of the process.  allowed :
    packages of `REFUSED` that it may import.  closed : folders that it may not read.
    FileNotFoundError if there is no such file, ValueError for a notebook.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "sub.py")
    ...     _ = path.write_text("def double(x): return 2 * x")
    ...     with Submission(path) as student:
    ...         student.call("double", 21)
    42
    """

    path: str | os.PathLike[str]
    variant: Mapping[str, Any] = field(default_factory=dict)
    _: KW_ONLY
    isolated: bool = True
    seconds: float = 10.0
    memory: int = 2**32
    allowed: Sequence[str] = ()
    closed: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not Path(self.path).is_file():
            raise FileNotFoundError(f"submission expects a Python file, got {os.fspath(self.path)!r}, which is none")
        if Path(self.path).suffix == ".ipynb":
            raise ValueError("submission expects a script; in Jupyter: File, Save and Export As, Executable Script")
        self._broken = ""  # why the file does not load, once that is known
        self._module: ModuleType | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __exit__(self, *error: object) -> None:
        self.close()

    def call(self, name: str, *args: Any) -> Any:
        """name(*args), as the submission defines it."""
        return self.ask("call", name, args)[0]

    def output(self, name: str, *args: Any) -> tuple[Any, list[int]]:
        """(name(*args) without the cache that a forward function may return, arguments changed in place)."""
        return self.ask("output", name, args)

    def pull(self, forward: str, backward: str, u: Any, *args: Any) -> tuple[Any, list[int]]:
        """(gradients of <u, forward(*args)> by the submission's backward function, arguments changed in place)."""
        return self.ask("pull", forward, args, backward=backward, u=u)

    def ask(self, do: str, name: str, args: Sequence[Any] = (), **more: Any) -> tuple[Any, list[int]]:
        """(the answer to a request as `minintk.grade.worker.answer` describes it, arguments changed in place)."""
        asked = {"do": do, "name": name, "args": tuple(args), **more}
        try:
            worker.tree_of(asked)
        except TypeError as error:
            raise GraderError(f"a case expects what can be passed to another process: {error}") from error
        if not self._broken and self._process is None and self._module is None:
            self._start()
        if self._broken:
            raise SubmissionError(self._broken)
        if self._module is not None:  # on copies of the arguments, as another process would get them
            reply = worker.answer(self._module, copy.deepcopy(asked))
        else:
            reply = self._exchange(asked, self.seconds)
        if "error" in reply:
            raise SubmissionError(str(reply["error"]))
        return reply.get("value"), list(reply.get("changed", ()))

    def close(self) -> None:
        """End the process, if there is one; the next call starts another."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        if self._folder is not None:
            self._folder.cleanup()
        self._process = self._folder = self._module = None

    def _start(self) -> None:
        """Load the file: here, or in a process in an empty folder, with no variables but those it needs."""
        if not self.isolated:
            loaded = worker.load(Path(self.path), self.variant)
            self._module, self._broken = (None, loaded) if isinstance(loaded, str) else (loaded, "")
            return
        self._folder = tempfile.TemporaryDirectory(prefix="minintk-grade-")
        home = self._folder.name
        kept = {name: os.environ[name] for name in ("SYSTEMROOT", "PATH", "LD_LIBRARY_PATH") if name in os.environ}
        one = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        command, pipe = [sys.executable, "-s", "-P", "-B", worker.__file__], subprocess.PIPE
        env = kept | one | {"PYTHONHASHSEED": "0", "HOME": home}
        null = subprocess.DEVNULL
        try:
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=null, cwd=home, env=env)
        except OSError as error:
            self.close()
            raise GraderError(f"no process can start here ({error}): try isolated=False, --in-process") from error
        packages = map(importlib.util.find_spec, {"minintk", "analytic"}.difference(self.allowed))
        homes = [place for spec in packages if spec for place in spec.submodule_search_locations or ()]
        first = {
            "path": str(shutil.copy(self.path, Path(home, "submission.py"))), "variant": self.variant,
            "memory": self.memory, "seconds": max(60, int(20 * self.seconds)), "refused": REFUSED,
            "allowed": self.allowed, "roots": [*self.closed, *homes, "/proc"],
        }  # fmt: skip
        reply = self._exchange(first, max(self.seconds, 60.0))  # NumPy has to be read, on a busy machine perhaps
        if "error" in reply:
            self.close()
            self._broken = str(reply["error"])

    def _exchange(self, asked: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """One request and its reply; the process is killed at the time limit."""
        process: Any = self._process
        timer, began = Timer(seconds, process.kill), time.monotonic()
        timer.start()
        try:
            worker.send(process.stdin, asked)
            reply = worker.receive(process.stdout)
            if not isinstance(reply, dict):
                raise ValueError("no dict")
        except (EOFError, BrokenPipeError):
            status = process.wait()
            self.close()
            end = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
            late = time.monotonic() - began >= seconds
            why = f"no answer within {seconds:g} s" if late else f"the process {end}"
            raise SubmissionError(f"{asked.get('backward', asked.get('name', 'the file'))}: {why}") from None
        except ValueError as error:
            self.close()
            raise SubmissionError(f"its answer is no answer: {error}") from None
        finally:
            timer.cancel()
        return reply
