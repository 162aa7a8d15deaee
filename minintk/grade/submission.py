"""Call a submission in its own process or, with isolated=False, in this one, e.g. if processes cannot start.

If the submission fails, `Submission.call` raises SubmissionError with a one-line message.  A submission fails if it
raises an exception, exceeds the time limit or returns a value that cannot be passed on, or if its process dies.
"""

from __future__ import annotations

import copy
import importlib.util
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from threading import Event, Thread
from types import ModuleType
from typing import Any

from minintk.grade import hand_in, worker

LOADING = 30.0
"""The smallest time limit for loading the file, in seconds.  The last cells of a notebook can take long."""


class SubmissionError(Exception):
    """An error in a submission, described in one line."""


class GraderError(RuntimeError):
    """An error on the grader's side, in a case or on the machine, which the instructor has to fix."""


@dataclass(eq=False)
class Submission(AbstractContextManager["Submission"]):
    """A student's file.  It runs at the first call, and leaving the context ends its process.

    path : the file, a script or a notebook.  variant : the values that `from variant import ...` provides.  isolated :
    if True, it runs in its own process, in the sandbox of wall.py; if False, in this process.  seconds : the time limit
    for one call.  memory : the limit of the process in bytes.  allowed : packages that the file can import besides
    NumPy and the standard library.  Raises FileNotFoundError for a missing file.  Calls fail if the file does not load.

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

    def __post_init__(self) -> None:
        if not Path(self.path).is_file():
            raise FileNotFoundError(f"submission expects a script or notebook, got {os.fspath(self.path)!r}, no file")
        self.wall: str | None = None  # the sandbox of the process, once known; "" without a sandbox
        self.warned = ""  # the first warning of the last call that warned, with its line
        self.asked = set[str]()  # functions that have been called
        self._lent: Sequence[str] = ()  # functions that `_lender` replaces
        self._lender: Submission | None = None
        self.imaginary = 0  # the first line with complex numbers, a sign of complex-step differentiation
        self.broken = ""  # the reason why the file does not load, once known
        self._late: Counter[str] = Counter()  # how often a function did not answer in time
        self._module: ModuleType | None = None
        self._process: Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __exit__(self, *error: object) -> None:
        self.close()

    def call(self, name: str, *args: Any) -> Any:
        """Return the result of the submission's function `name` for these arguments."""
        return self.ask("call", name, args)[0]

    def output(self, name: str, *args: Any) -> tuple[Any, list[int]]:
        """Return (name(*args) without the cache of a forward function, positions of the arguments changed in place)."""
        return self.ask("output", name, args)

    def pull(self, forward: str, backward: str, u: Any, *args: Any) -> tuple[Any, list[int]]:
        """Return the submission's gradients of <u, forward(*args)>, and the positions of arguments changed in place."""
        return self.ask("pull", forward, args, backward=backward, u=u)

    @contextmanager
    def lent(self, names: Sequence[str], lender: Submission) -> Iterator[None]:
        """Use the lender's functions of these names in place of the submission's when other functions call them."""
        self._lent, self._lender = names, lender
        try:
            yield
        finally:
            self._lent, self._lender = (), None

    def _lend(self, name: str, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
        if name not in self._lent or self._lender is None:
            raise ValueError(f"it asks for {name}, which is not lent")
        order = self._lender.ask("parameters", name)[0][len(args) :]
        return self._lender.call(name, *args, *(named[key] for key in order if key in named))

    def ask(self, do: str, name: str, args: Sequence[Any] = (), **more: Any) -> tuple[Any, list[int]]:
        """Return the value in the reply of `minintk.grade.worker.answer`, and the positions of changed arguments."""
        asked = {"do": do, "name": name, "args": tuple(args), "lent": tuple(self._lent), **more}
        if {name, more.get("backward")} & {*self._lent}:
            raise SubmissionError(f"{name} is asked for itself: nothing stands in for it")
        self.asked |= {name, *filter(None, [more.get("backward")])}
        try:
            worker.tree_of(asked)
        except TypeError as error:
            raise GraderError(f"a case expects what can be passed to another process: {error}") from error
        if self._process is not None and self._process.poll() is not None:
            self.close()  # it ended after its last answer
        if not self.broken and self._process is None and self._module is None:
            self._start()
        if self.broken:
            raise SubmissionError(self.broken)
        if self._module is not None:  # on copies of the arguments, as in another process
            reply = worker.answer(self._module, copy.deepcopy(asked), self._lend)
        elif self._late[key := str(more.get("backward", name))] > 1:
            reply = {"error": f"{key}: no answer within {self.seconds:g} s, twice: not tried again"}
        else:
            reply = self._exchange(asked, self.seconds * (3 if self._lent else 1), key)  # lending takes time
        if "error" in reply:
            raise SubmissionError(str(reply["error"])[:2000])
        self.warned = str(reply.get("warned") or self.warned)[:2000]
        return reply.get("value"), list(reply.get("changed", ()))

    def close(self) -> None:
        """End the process, if there is one.  The next call starts a new one."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        if self._folder is not None:
            self._folder.cleanup()
        self._process = self._folder = self._module = None

    def _start(self) -> None:
        """Load the file here or in a new process, in a new folder and with only the necessary environment variables."""
        try:
            text = hand_in.text_of(Path(self.path))
            self.imaginary = hand_in.imaginary(text)
        except (ValueError, KeyError) as error:  # not a valid notebook, or a script that is not UTF-8
            self.broken = f"the file does not load: {error}"
            return
        self._folder = tempfile.TemporaryDirectory(prefix="minintk-grade-", ignore_cleanup_errors=True)
        code, home = (Path(os.path.realpath(self._folder.name), name) for name in ("code", "home"))
        for folder in (code, home):
            folder.mkdir()
        path = home / "submission.py"
        path.write_text(text, encoding="utf-8")
        if not self.isolated:
            loaded = worker.load(path, self.variant)
            self._module, self.broken = (None, loaded) if isinstance(loaded, str) else (loaded, "")
            return
        packages = ("numpy", *self.allowed)
        found = [s for s in map(importlib.util.find_spec, packages) if s and s.origin]  # e.g. a folder's __init__.py
        places = dict.fromkeys(
            str(Path(s.origin or "").parents[s.submodule_search_locations is not None]) for s in found
        )
        kept = {name: os.environ[name] for name in ("SYSTEMROOT", "PATH", "LD_LIBRARY_PATH") if name in os.environ}
        one = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        own = {"PYTHONHASHSEED": "0", "HOME": str(home), "TMPDIR": str(home), "PYTHONPATH": os.pathsep.join(places)}
        command = [sys.executable, "-s", "-S", "-P", "-B", str(code / "worker.py")]
        try:
            for name in ("worker.py", "wall.py"):  # copy them to keep the library's path private
                shutil.copy(Path(worker.__file__).with_name(name), code)
            self._process = Popen(command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, cwd=home, env=kept | one | own)
        except OSError as error:
            self.close()
            raise GraderError(f"no process can start here ({error}): try isolated=False, --in-process") from error
        first: dict[str, Any] = {"path": str(path), "home": str(home), "packages": packages, "variant": self.variant}
        first |= {"memory": self.memory, "seconds": max(60, int(20 * self.seconds))}
        try:
            self.wall = str(self._exchange(first, 60.0)["value"])  # time to load NumPy on a busy machine
        except SubmissionError as error:
            raise GraderError(f"the student's process did not start: {error}") from error
        try:
            reply = self._exchange(None, max(self.seconds, LOADING))
        except SubmissionError as error:  # do not retry: the next case would wait just as long
            reply = {"error": f"the file does not load: {error}".replace(" the file:", "")}
        if "error" in reply:
            self.close()
            self.broken = str(reply["error"])

    def _exchange(self, asked: Mapping[str, Any] | None, seconds: float, name: str = "the file") -> dict[str, Any]:
        """Send one request, if any, and return the reply.  Kill the process at the time limit."""
        process: Any = self._process
        done, began, grace = Event(), time.monotonic(), 0 if name == "the file" else 3 * seconds
        (watcher := Thread(target=_watch, args=(process, seconds, grace, done), daemon=True)).start()
        try:
            if asked:
                worker.send(process.stdin, asked)
            reply = worker.receive(process.stdout)
            while isinstance(reply, dict) and "needs" in reply:
                try:
                    value = {"value": self._lend(str(reply["needs"]), reply["args"], reply["named"])}
                    worker.tree_of(value)
                except (SubmissionError, KeyError, TypeError) as error:  # the lent function rejects the arguments
                    value = {"error": str(error)}
                worker.send(process.stdin, value)
                reply = worker.receive(process.stdout)
            if not isinstance(reply, dict):
                raise ValueError("no dict")
        except (EOFError, BrokenPipeError):
            status = process.wait()
            self.close()
            end = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
            self._late[name] += (late := time.monotonic() - began >= seconds)
            why = f"no answer within {seconds:g} s" if late else f"the process {end}"
            raise SubmissionError(f"{name}: {why}") from None
        except ValueError as error:
            self.close()
            raise SubmissionError(f"its answer is no answer: {error}") from None
        finally:
            done.set()
            watcher.join()
        return reply


def _watch(process: Popen[bytes], seconds: float, grace: float, done: Event) -> None:
    """Kill the process after `seconds`, or `grace` seconds later if the machine is too busy to run it."""
    spent = _used(process.pid)
    if not done.wait(seconds) and (_used(process.pid) - spent > seconds / 2 or not done.wait(grace)):
        process.kill()
        process.wait()


def _used(pid: int) -> float:
    """Return the CPU seconds of a process, or wall-clock seconds on systems other than Linux."""
    with suppress(AttributeError, OSError):
        return time.clock_gettime(~pid << 3 | 2)  # the result of clock_getcpuclockid
    return time.monotonic()
