"""Solve kernel regression of any size: (K + ridge I) a = y by conjugate gradients, until the residual is at most tol.

    preconditioner        work                     memory besides x                    on disk, with store=
    "cholesky"  L L'      n^3 / 3, 2 to 4 steps    a panel of K; L without store=      K, L and the state
    "landmarks"           M^3 + steps times n M    M^2, and k(x, z) up to 4 GiB        k(x, z) and the state

The factor has the precision of K, for instance float32.  Residuals and steps use float64, so the steps also correct
rounding errors of the factor.  Here n is the number of examples, and M the number of landmarks.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from math import inf, log
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np

from analytic.kernels import Kernel
from analytic.large import gram
from analytic.large.dask_factor import DaskFactor, dask_client
from analytic.large.factor import Factor
from analytic.large.landmarks import ROWS, Nystrom, chosen, weights
from analytic.recursion.requests import Store
from analytic.training.eigen import check_memory
from analytic.training.gp import Ensemble, KernelLike, Kind
from analytic.training.posterior import posterior
from minintk.arrays import Array, Host, array_namespace, on_host, to_host, to_library
from minintk.files.locks import Claim
from minintk.files.reading import Unreadable, read_npz, reading
from minintk.files.writing import digest, made_folder, remove_parts, write_atomically
from minintk.progress import progress_of
from minintk.validate import number

Precondition = Callable[[Array], Array]
By = Literal["cholesky", "landmarks"]

MOST_STEPS = 1000
"""Maximum number of steps.  If the residual then exceeds tol, `solve` warns, or raises ValueError if it is >= 1."""

CHUNK = 2**28
"""Maximum size, in bytes, of the part of the test-training kernel that is in memory at a time."""


@dataclass(frozen=True, eq=False, repr=False)
class Solved:
    """f(x) = k(x, X) a with (K + ridge I) a = y; built by `solve`.

    coefficients : a, (N, C), float64.   residual : the largest |y - (K + ridge I) a| / |y| over the C columns, in
    float64.   steps : number of steps of conjugate gradients.
    landmarks : (M,), indices for by="landmarks", or None.  With landmarks, f(x) = k(x, X[landmarks]) a with a : (M, C).
    The residual is then that of the full system with a = 0 at all other examples.  It is not a bound on the error.
    """

    coefficients: Array
    residual: float
    steps: int
    _of: Callable[[Array, Array | None], Array]
    ensemble: Ensemble
    landmarks: Host | None = None

    def predict(self, x_test: Array) -> Array:
        """Return f : (M, C) at x_test : (M, *shape of an example), using pieces of the kernel of up to 256 MiB."""
        self.ensemble.check(x_test)
        X, xp = self.ensemble.x, array_namespace(self.ensemble.x)
        X = X if self.landmarks is None else X[to_library(self.landmarks, xp)]
        rows = max(1, CHUNK // (int(X.dtype.itemsize) * int(X.shape[0])))
        pieces = [x_test[i : i + rows] for i in range(0, x_test.shape[0], rows)]
        found = [xp.astype(self._of(piece, X), xp.float64) @ self.coefficients for piece in pieces]
        return xp.astype(xp.concat(found) if found else self.coefficients[:0], X.dtype)


def solve(
    kernel: KernelLike, x: Array, y: Array, *, ridge: float = 0.0, kind: Kind = "ntk", by: By = "cholesky",
    landmarks: Any = None, weight: Array | None = None, tol: float = 1e-8, store: Store = None,
    executor: Executor | None = None, progress: bool = False,
) -> Solved:  # fmt: skip
    """Compute f(x) = k(x, X) (k(X, X) + ridge I)^-1 y, the mean of `posterior`, for kernels that do not fit in memory.

    kernel, x, y, ridge (a number), kind : as in `posterior`.  With "cholesky" and a store, K is read panel by panel.
    by : "cholesky" factorises the kernel on the host; if the kernel is not positive definite, the error names the
        pivot.  "landmarks" minimises sum_i w_i |f(x_i) - y_i|^2 + ridge a' k(z, z) a over functions f = k(., z) a,
        where z are the landmarks.  The solution is approximate; a step takes at most O(N M) operations.
    landmarks : for by="landmarks", the number (default 5000) or the indices of examples.   weight : w, (N,), or ones.
    tol : the iteration stops if |y - (K + ridge I) a| / |y|, or its analogue for landmarks, is <= tol in each column.
    store : a folder for the kernel, its factor and the iteration's state.  If the process is killed, the same call
        resumes, and its result has the same bits (docs/large-kernels.md).  Without a store, the factor is in memory
        (N^2 / 2 entries), and each step recomputes the blocks of the kernel.
    executor : computes the blocks of the kernel, which the steps read from `store`.  The workers of a dask client's
        executor also compute the factor, for which they need access to the folder (docs/clusters.md).
    progress : show progress bars with the remaining time on stderr.

    Raises ValueError for arguments that `posterior` rejects, landmarks that are not examples, a kernel that is not
    positive definite, a residual of 1 or more, or a store of another kernel.  Raises MemoryError or OSError if
    memory or disk space is insufficient.  Warns if tol is not reached.  A second process that makes the
    same call helps with the kernel, waits for the factor, and returns the result.  Sources: Hestenes and Stiefel 1952;
    Golub and Ye 1999 (beta); Rudi, Carratino and Rosasco 2017, eqs. (8) and (13) (landmarks).

    >>> import numpy as np, minintk as mn, analytic as an
    >>> x = np.random.default_rng(0).standard_normal((20, 5))
    >>> k = an.kernel(mn.Sequential(mn.Dense(512, w_std=2**0.5), mn.ReLU(), mn.Dense(1)))
    >>> fit = solve(k, x, x[:, :2], ridge=0.1)
    >>> bool(np.allclose(fit.predict(x[:3]), an.posterior(k, x, x[:, :2], ridge=0.1, kind="ntk").predict(x[:3])))
    True
    >>> solve(k, x, x[:, :2], ridge=0.1, by="landmarks", landmarks=10).coefficients.shape
    (10, 2)
    """
    examples = posterior(kernel, x, y, ridge=(ridge := number("ridge", ridge, zero=True)), kind=kind).ensemble  # copies
    x, y, xp = examples.x, examples.y, array_namespace(examples.x)
    if x.dtype.kind != "f":
        raise TypeError(f"solve expects floating-point examples, got {x.dtype}: for kernel matrices use posterior")
    if by not in get_args(By):
        raise ValueError(f"by expects 'cholesky' or 'landmarks', got {by!r}")
    if by != "landmarks" and not (landmarks is None and weight is None):
        raise ValueError(f"landmarks and weight expect by='landmarks', got by={by!r}")
    if by == "cholesky" and not on_host(xp):
        raise TypeError("by='cholesky' is for arrays of NumPy: on a GPU use posterior, or by='landmarks'")
    if not (tol := number("tol", tol)) < 1:
        raise ValueError(f"tol expects a number between 0 and 1, got {tol!r}")
    of: Callable[..., Array] = examples.of(kind)
    at = chosen(5000 if landmarks is None else landmarks, int(x.shape[0])) if by == "landmarks" else None
    z, w = (None, y) if at is None else (x[to_library(at, xp)], weights(weight, x))
    _check_memory(x, y, 0 if at is None else len(at), store)
    if executor is not None and store is None:
        raise ValueError("executor= expects store=, a folder for the kernel that all steps read: pass store='FOLDER'")
    folder, stored, precondition = None, cast(Any, None), cast(Precondition, None)
    if store is not None:
        if not isinstance(kernel, Kernel):
            raise TypeError(f"store= is for kernels of analytic.kernel, which say what they are, got {kernel!r}")
        parts = (repr(kernel), kind, by, "", ridge, gram.BLOCK)
        mark = digest(f"minintk solve 3; {parts}", x, *(() if z is None else (z, w)))
        folder = made_folder(made_folder(store, "store=") / f"{by}-{mark}", "store=")
        with progress_of("kernel", 1.0, progress) as advance:
            told = _shares(advance) if progress else None  # if None, the kernel warns of an hour or more
            stored = of(x, z, store=store if z is None else folder / "kernel", progress=told, executor=executor)
    with nullcontext() if folder is None else Claim(folder / "solve.lock", wait=True):
        K: Any = gram.Gram(of, x, ridge, stored)
        y = xp.astype(y, xp.float64)
        if at is not None:
            kept = folder and folder / f"sums-{digest(examples.y)}.npz"
            K = Nystrom(of, x, y, at, ridge, w, stored, partial(_read, kept), partial(_write, kept), progress)
            right, precondition = K.right, K.precondition
        else:
            client = dask_client(executor)
            L = Factor(K, folder, progress) if client is None else DaskFactor(K, client, gram.BLOCK, progress)
            right, precondition = y, L.solve
        state = None if folder is None else folder / f"state-{digest(examples.y)}.npz"
        a, residual, steps = _gradients(K, precondition, right, tol, state, progress)
    if not residual <= tol:
        what = f"the residual after {steps} steps is {residual:.2g}, not tol={tol:.2g}"
        remedy = "pass a larger ridge or tol, float64 examples, or remove examples that coincide"
        if not residual < 1:
            raise ValueError(f"{what}, so the kernel + ridge may be singular: {remedy}")
        warnings.warn(f"{what}: {remedy}", RuntimeWarning, stacklevel=2)
    if isinstance(K, Nystrom):
        a = K.coefficients(a)
        residual = K.residual(a, y)
    return Solved(a, residual, steps, of, examples, at)


def _gradients(
    K: gram.Gram | Nystrom, precondition: Precondition, y: Array, tol: float, state: Path | None, progress: bool
) -> tuple[Array, float, int]:
    """Solve for all columns of y by conjugate gradients, with one product per step; return (a, residual, steps).

        z = P^-1 r,   beta = -z'w / r'z (previous),   p = z + beta p
        q = (K + ridge) p,   alpha = r'z / p'q,   w = alpha q,   a += alpha p,   r -= w

    At the end, r is recomputed from a; if the residual still exceeds tol, the iteration restarts from a.
    """
    xp = K.xp
    sizes = xp.max(xp.abs(y), axis=0)
    sizes = xp.where(sizes > 0, sizes, xp.ones_like(sizes))
    y = y / sizes
    lengths = xp.maximum(xp.linalg.vector_norm(y, axis=0), xp.full_like(sizes, 1e-300))
    zero = xp.zeros_like(y)
    now = {"a": zero, "r": y, "p": zero, "w": zero, "rz": xp.zeros_like(sizes), "counts": xp.zeros(2)}
    if (found := _read(state, now)) is not None:
        now = {name: to_library(value, xp) for name, value in found.items()}
    steps, fresh, best = int(now["counts"][0]), bool(now["counts"][1]), inf
    residual = float(xp.max(xp.linalg.vector_norm(now["r"], axis=0) / lengths))
    share: Callable[[float], float] = lambda now: min(1.0, log(min(1.0, max(now, tol))) / log(tol))  # noqa: E731
    with progress_of("residual", 1.0, progress) as advance:
        advance(share(residual))
        while True:
            if not residual > tol or steps >= MOST_STEPS:  # also stops if the residual is NaN
                if fresh:
                    break
                now |= {"r": y - K.product(now["a"]), "p": zero, "w": zero, "rz": xp.zeros_like(sizes)}
                fresh = True
            else:
                now, steps, fresh = _step(K, precondition, now), steps + 1, False
            before, residual = residual, float(xp.max(xp.linalg.vector_norm(now["r"], axis=0) / lengths))
            advance(share(residual) - share(before))
            _write(state, now | {"counts": np.array([steps, fresh], float)})
            if fresh:
                if not residual < best / 2:
                    break
                best = residual
    return now["a"] * sizes, residual, steps


def _step(K: gram.Gram | Nystrom, precondition: Precondition, now: dict[str, Array]) -> dict[str, Array]:
    """Take one step of conjugate gradients; raise ValueError if p'(K + ridge I)p < 0 (a negative eigenvalue)."""
    xp, a, r = K.xp, now["a"], now["r"]
    z = precondition(r)
    beta = -xp.sum(z * now["w"], axis=0) / xp.where(now["rz"] > 0, now["rz"], xp.full_like(now["rz"], inf))
    p = z + beta * now["p"]
    rz, q = xp.sum(z * r, axis=0), K.product(p)
    pq, pp = xp.sum(p * q, axis=0), xp.sum(p * p, axis=0)
    if bool(xp.any(pq < 0)):
        least = float(xp.min(pq / xp.where(pp > 0, pp, xp.ones_like(pp))))
        raise ValueError(
            f"the kernel + ridge is not positive definite: it has an eigenvalue of {least:.3g} or less; pass a larger "
            f"ridge (it is {K.ridge:.3g}), or float64 examples"
        )
    alpha = xp.where(pq > 0, rz, xp.zeros_like(rz)) / xp.where(pq > 0, pq, xp.ones_like(pq))
    w = alpha * q
    return {"a": a + alpha * p, "r": r - w, "p": p, "w": w, "rz": rz}


def _shares(advance: Callable[[float], None]) -> Callable[[int, int], None]:
    """Return a progress(done, total) that passes increments to `advance`, excluding an earlier process's work."""
    seen: list[int] = []

    def progress(done: int, total: int) -> None:
        seen.append(done)
        advance((done - seen[-2:][0]) / max(1, total - seen[0]))

    return progress


def _read(path: Path | None, like: Mapping[str, Array]) -> dict[str, Host] | None:
    """Return an earlier process's arrays with the names and shapes of `like`, or None; warn if they are damaged."""
    if path is None:
        return None
    try:
        with reading(path, "the state of a solve", "it is computed again") as file:
            found = read_npz(file)
            if found.keys() != like.keys() or any(found[n].shape != a.shape for n, a in like.items() if a.size):
                raise ValueError(f"it holds { {name: a.shape for name, a in found.items()} }")
            return found
    except FileNotFoundError:
        return None
    except Unreadable as error:
        warnings.warn(str(error), stacklevel=5)
        return None


def _write(path: Path | None, arrays: dict[str, Array]) -> None:
    """Store the arrays for a later process, unless `path` is None."""
    if path is None:
        return
    remove_parts(path)
    host = {name: to_host(a) for name, a in arrays.items()}
    need = sum(a.nbytes for a in host.values())
    write_atomically(path, lambda file: np.savez(file, allow_pickle=False, **host), need)


def _check_memory(x: Array, y: Array, m: int, store: Store) -> None:
    """Raise MemoryError if the solve does not fit in memory.   m : number of landmarks, or 0."""
    (n, C), item = y.shape, int(x.dtype.itemsize)
    if m:
        need, remedy = 32 * m**2 + 24 * m * max(m, ROWS) + 8 * C * (6 * m + 4 * n), "take fewer landmarks"
    else:
        need = 2 * item * n * min(n, gram.BLOCK) + 80 * n * C + (item * n * n // 2 if store is None else 0)
        remedy = "pass store=, or float32 examples"
    check_memory(array_namespace(x), f"the solve with {n} examples{f' on {m} landmarks' * (m > 0)},", need, remedy)
