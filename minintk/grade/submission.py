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
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Timer
from types import TracebackType
from typing import Any, Self

from minintk.grade import worker

REFUSED = ("analytic", "minintk", "jax", "torch", "tensorflow", "autograd", "neural_tangents", "cupy")
"""What a submission may not import, unless its assignment allows it: they hold answers, or trace derivatives."""


class SubmissionError(Exception):
    """What went wrong inside a submission, in one line."""


class GraderError(RuntimeError):
    """What is wrong on the grader's side, with a case or with the machine: the instructor's to mend."""


class Submission:
    """A student's file, loaded; a context manager that ends its process.

    path : the file.  variant : what `from variant import ...` gives it.  isolated : a process of its own, with an
    import guard and limits; False runs it here, without any of them.  seconds : for one call.  memory : bytes of the
    process.
    allowed : packages of `REFUSED` that it may import.  closed : folders that it may not read.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "sub.py")
    ...     _ = path.write_text("def double(x): return 2 * x")
    ...     with Submission(path) as student:
    ...         student.call("double", 21)
    42
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        variant: Mapping[str, Any] | None = None,
        *,
        isolated: bool = True,
        seconds: float = 10.0,
        memory: int = 2**32,
        allowed: Sequence[str] = (),
        closed: Sequence[str | os.PathLike[str]] = (),
    ) -> None:
        """Raises FileNotFoundError if there is no such file; the file itself runs at the first call."""
        self.path, self.variant = Path(path), dict(variant or {})
        if not self.path.is_file():
            raise FileNotFoundError(f"submission expects a Python file, got {str(path)!r}, which is none")
        self.isolated, self.seconds, self.memory = isolated, seconds, memory
        self.allowed, self.closed = tuple(allowed), tuple(map(str, closed))
        self._broken = ""  # why the file does not load, once that is known
        self._module: worker.Module | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def call(self, name: str, *args: Any) -> Any:
        """name(*args), as the submission defines it."""
        return self.ask(name, *args)[0]

    def ask(self, name: str, *args: Any) -> tuple[Any, list[int]]:
        """(name(*args), positions of the arguments that it has changed in place)."""
        return self._ask({"do": "call", "name": name, "args": args, "output": False})

    def output(self, name: str, *args: Any) -> tuple[Any, list[int]]:
        """(name(*args) without the cache that a forward function may return, arguments changed in place)."""
        return self._ask({"do": "call", "name": name, "args": args, "output": True})

    def pull(self, forward: str, backward: str, u: Any, *args: Any) -> tuple[Any, list[int]]:
        """(gradients of <u, forward(*args)> by the submission's backward function, arguments changed in place)."""
        return self._ask({"do": "pull", "forward": forward, "backward": backward, "u": u, "args": args})

    def parameters(self, name: str) -> list[str]:
        """Names of the arguments of the submission's function."""
        return list(self._ask({"do": "parameters", "name": name})[0])

    def close(self) -> None:
        """End the process, if there is one; the next call starts another."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        if self._folder is not None:
            self._folder.cleanup()
        self._process = self._folder = self._module = None

    # ---------------------------------------------------------------------------------------- its two ways

    def _ask(self, asked: dict[str, Any]) -> tuple[Any, list[int]]:
        try:
            worker.check(asked)
        except TypeError as error:
            raise GraderError(
                f"the arguments of a case expect what can be passed to another process: {error}"
            ) from error
        reply = self._exchange(asked) if self.isolated else self._here(asked)
        if not isinstance(reply, dict) or "error" in reply:
            raise SubmissionError(str(reply["error"] if isinstance(reply, dict) else "its answer is no answer"))
        return reply.get("value"), list(reply.get("changed", ()))

    def _here(self, asked: dict[str, Any]) -> dict[str, Any]:
        """In this process, on copies of the arguments, as another process would get them."""
        if self._module is None:
            try:
                self._module = worker.Module(self.path, self.variant)
            except (Exception, SystemExit) as error:
                return {"error": f"the file does not load: {worker.fault(error, str(self.path))}"}
        return worker.answer(self._module, copy.deepcopy(asked))

    def _exchange(self, asked: dict[str, Any], seconds: float = 0.0) -> Any:
        """One request and its reply; the process is killed at the time limit, `seconds` if that is more."""
        if self._broken:
            raise SubmissionError(self._broken)
        if self._process is None:
            self._start()
        assert self._process is not None
        process: Any = self._process
        late: list[bool] = []

        def stop() -> None:
            late.append(True)
            process.kill()

        seconds = max(self.seconds, seconds)
        timer = Timer(seconds, stop)
        timer.start()
        try:
            worker.send(process.stdin, asked)
            return worker.receive(process.stdout)
        except (EOFError, BrokenPipeError):
            status = process.wait()
            self.close()
            why = f"no answer within {seconds:g} s" if late else _cause(status)
            raise SubmissionError(f"{asked.get('name', asked.get('backward', 'the file'))}: {why}") from None
        except ValueError as error:
            self.close()
            raise SubmissionError(f"its answer is no answer: {error}") from None
        finally:
            timer.cancel()

    def _start(self) -> None:
        """A process in an empty folder with a copy of the file, and no variables but those it needs."""
        self._folder = tempfile.TemporaryDirectory(prefix="minintk-grade-")
        copy = str(shutil.copy(self.path, Path(self._folder.name, "submission.py")))
        kept = {name: os.environ[name] for name in ("SYSTEMROOT", "PATH", "LD_LIBRARY_PATH") if name in os.environ}
        one = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        command = [sys.executable, "-s", "-P", "-B", worker.__file__]
        env, pipe = kept | one | {"PYTHONHASHSEED": "0", "HOME": self._folder.name}, subprocess.PIPE
        try:
            self._process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, cwd=self._folder.name, env=env
            )
        except OSError as error:
            self.close()
            raise GraderError(
                f"no process can start here ({error}): isolated=False, --in-process, does without"
            ) from error
        first = {
            "path": copy, "variant": self.variant, "memory": self.memory, "seconds": max(60, int(20 * self.seconds)),
            "refused": REFUSED, "allowed": self.allowed, "roots": [*self.closed, *_homes(self.allowed), "/proc"],
        }  # fmt: skip
        reply = self._exchange(first, 60.0)  # NumPy has to be read, on a busy machine perhaps
        if "error" in reply:
            self.close()
            self._broken = f"the file does not load: {reply['error']}"
            raise SubmissionError(self._broken)


def _homes(allowed: Sequence[str]) -> list[str]:
    """Folders of this project's packages, found without importing them."""
    found = [importlib.util.find_spec(name) for name in ("minintk", "analytic") if name not in allowed]
    return [place for spec in found if spec for place in spec.submodule_search_locations or ()]


def _cause(status: int) -> str:
    """Why a process that did not answer has ended."""
    return f"the process was ended by signal {-status}" if status < 0 else f"the process ended with status {status}"
