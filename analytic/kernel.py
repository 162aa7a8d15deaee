"""The infinitely wide network: `kernel(spec)` and its NNGP and NTK matrices.

    K(x, x')     = E f_i(x) f_i(x')                             of one output i, over initialisations
    Theta(x, x') = sum_theta df_i/dtheta(x) df_i/dtheta(x')     the same for every i, 0 across outputs

as all widths go to infinity (Lee et al. 2019, eqs. (12) and (4); Jacot et al. 2018).  The input kernel is x x' / d.
"""

from __future__ import annotations

import os
import warnings
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from math import prod
from typing import Any, NamedTuple

from analytic.images import engine as image_engine
from analytic.images.rules import Flat, needs_images
from analytic.streaming.executors import block_size, check_executor
from analytic.streaming.store import evaluate_blocks, evaluate_into_store
from analytic.vectors.engine import Progress, VectorEngine, blocks, plan_vectors, square_norms, tile_width
from analytic.vectors.rules import lower
from analytic.vectors.state import Law, Program, RowState, cast, run_law, run_rows
from minintk import spec as s
from minintk.arrays import Array, array_namespace, available_memory, check_examples
from minintk.fast.threads import cores, single_threaded_blas
from minintk.spec.parametrization import NTK, Parametrization
from minintk.spec.shapes import Shape, Site, out_shape
from minintk.spec.windows import check_channels_last
from minintk.validate import number

DEFAULT_PARAMETRIZATION = NTK()
"""The parametrization unless another is given."""

LARGEST_SILENT_ERROR = 1e-8
"""A quadrature with a larger error bound than this warns."""

PIXEL_PAIRS_PER_BLOCK = 2**31
"""Largest number of pixel pairs in one block of a store, or of an executor."""

Store = str | os.PathLike[str] | None


class Both(NamedTuple):
    """The two kernels of one evaluation."""

    nngp: Array
    ntk: Array


@lru_cache(maxsize=256)
def program(spec: s.Layer, parametrization: Parametrization, shape: Shape) -> Program:
    """The steps of the recursion for examples of `shape`; UnsupportedLayer if it does not hold for the spec."""
    check_channels_last(spec, shape)
    steps = lower(spec, Site(shape), parametrization)
    run_law(steps, Law())
    return steps[1:] if steps and isinstance(steps[0], Flat) else steps  # flattened inputs are vectors


@dataclass(frozen=True)
class Kernel:
    """The kernels of an infinitely wide network; built by `kernel`.

    All methods take examples x : (N, *shape), float32 or float64, of NumPy or CuPy, and return arrays of that library
    and precision.  Errors relative to sqrt(k(x, x) k(x', x')) are a few 1e-15, in float32 a few 1e-7, for nearly
    parallel, equal, opposite and zero rows too; for activations without a closed form, `error` returns a bound.

    If the network has convolutions or pooling, images (N, H, W, C) and sequences (N, L, C) are followed pixel by pixel.
    The NNGP is as exact there.  The NTK depends on angles, and some of them are known only to the square root of the
    precision: between pixels that are opposite before a kink, nearly parallel after pooling, or in collinear windows of
    very different size.  Many of these cause errors of up to 1e-8 in the NTK, 1e-3 in float32, and of up to 1e-9 and
    1e-4 in the NNGP of later layers.

    With Numba installed, `pip install minintk[fast]`, large kernels of ReLU networks on images take half the time.

    memory : bound in bytes on everything the call allocates; the free memory unless given.  MemoryError, before any
        work, if the result does not fit.
    out : an array for the result (for `both`, a pair) of its shape and precision, for instance a numpy.memmap.
    store : a folder that keeps the result and a record of the finished blocks: if the process is killed, the same call
        continues where it stopped and gives the same bytes.  The result is a numpy.memmap there, nngp.npy, ntk.npy.
    progress : called as progress(tiles done, tiles in all), from several threads, one at a time.
    executor : a `concurrent.futures.Executor` that computes blocks of the result, on one core each; the threads of this
        process unless given.  For other machines, or for many cores; on two, threads are as fast.

    TypeError for integers or mixed libraries, ValueError for a wrong shape, NaN or infinity.
    """

    spec: s.Sequential
    parametrization: Parametrization = DEFAULT_PARAMETRIZATION

    def nngp(
        self,
        x1: Array,
        x2: Array | None = None,
        *,
        memory: int | None = None,
        out: Array | None = None,
        store: Store = None,
        progress: Progress | None = None,
        executor: Executor | None = None,
    ) -> Array:
        """K(x1, x2), (N, M); K(x1, x1) without x2.

        >>> import numpy as np, minintk as mn
        >>> x = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
        >>> kernel(mn.Sequential(mn.Dense(512, w_std=2**0.5), mn.ReLU(), mn.Dense(1))).nngp(x).round(4)
        array([[0.5   , 0.1592, 0.    ],
               [0.1592, 0.5   , 0.    ],
               [0.    , 0.    , 0.    ]])
        """
        return self._evaluate(x1, x2, (True, False), (out, None), memory, store, progress, executor)[0]

    def ntk(
        self,
        x1: Array,
        x2: Array | None = None,
        *,
        memory: int | None = None,
        out: Array | None = None,
        store: Store = None,
        progress: Progress | None = None,
        executor: Executor | None = None,
    ) -> Array:
        """Theta(x1, x2), (N, M); Theta(x1, x1) without x2."""
        return self._evaluate(x1, x2, (False, True), (None, out), memory, store, progress, executor)[1]

    def both(
        self,
        x1: Array,
        x2: Array | None = None,
        *,
        memory: int | None = None,
        out: tuple[Array, Array] | None = None,
        store: Store = None,
        progress: Progress | None = None,
        executor: Executor | None = None,
    ) -> Both:
        """(nngp, ntk), each (N, M), in one pass, which costs little more than one of them."""
        pair = (None, None) if out is None else (out[0], out[1])
        return Both(*self._evaluate(x1, x2, (True, True), pair, memory, store, progress, executor))

    def diag(self, x: Array) -> Both:
        """The diagonals of both kernels, (N,) each, in O(N).

        >>> import numpy as np, minintk as mn
        >>> kernel(mn.Sequential(mn.Dense(512, w_std=2**0.5), mn.ReLU(), mn.Dense(1))).diag(np.eye(2))
        Both(nngp=array([0.5, 0.5]), ntk=array([1., 1.]))
        """
        xp = array_namespace(x)
        check_examples("x", x)
        shape = tuple(x.shape[1:])
        if needs_images(self._program(shape)):
            found = image_engine.self_kernels(self._plan(x), x)
            return Both(xp.astype(found.nngp, x.dtype), xp.astype(found.ntk, x.dtype))
        rows = self._rows(x)
        return Both(xp.astype(rows.q, x.dtype), xp.astype(rows.theta, x.dtype))

    def error(self, x: Array) -> float:
        """Bound on the quadratures' error for these rows, relative to sqrt(k(x, x) k(x', x')); 0 for closed forms."""
        return self._rows(x).error

    def _program(self, shape: Shape) -> Program:
        return program(self.spec, self.parametrization, shape)

    def _plan(self, x: Array, dtype: Any = None, pairs: int = 0) -> image_engine.ImagePlan:
        shape = tuple(x.shape[1:])
        after = out_shape(self.spec, shape)
        return image_engine.plan_images(self._program(shape), shape, after, array_namespace(x), dtype or x.dtype, pairs)

    def _rows(self, x: Array) -> RowState:
        check_examples("x", x)
        steps = self._program(tuple(x.shape[1:]))
        if needs_images(steps):
            found = image_engine.self_kernels(self._plan(x), x)
            return RowState(found.nngp, found.ntk, found.error)
        x = flat(x)
        norms2 = square_norms((x,))
        if not x.shape[0]:
            return RowState(norms2, norms2)
        with single_threaded_blas():
            return run_rows(steps, RowState(norms2 / max(1, x.shape[1]), 0 * norms2))[0]

    def _warn_of(self, error: float) -> None:
        """Warn of a quadrature that is not exact."""
        if error > LARGEST_SILENT_ERROR:
            warnings.warn(
                f"the kernel of {self.spec!r} is by quadrature and exact to {error:.1g} only, relative to "
                "sqrt(k(x, x) k(x', x')): pre-activations are large, or phi has kinks; scale the inputs, or w_std, "
                "down",
                stacklevel=4,
            )

    def _evaluate(
        self,
        x1: Array,
        x2: Array | None,
        asked: tuple[bool, bool],
        out: tuple[Array | None, Array | None],
        memory: int | None,
        store: Store,
        progress: Progress | None,
        executor: Executor | None,
    ) -> list[Array]:
        check_examples("x1", x1)
        if 0 in x1.shape[1:]:
            raise ValueError(f"x1 expects examples that hold numbers, got shape {tuple(x1.shape)}")
        memory = None if memory is None else int(number("memory", memory))
        symmetric = x2 is None or x2 is x1
        if x2 is not None and not symmetric:
            array_namespace(x1, x2)
            check_examples("x2", x2, x1.shape[1:])
            if x2.dtype != x1.dtype:
                raise TypeError(f"x1 and x2 expect one precision, got {x1.dtype} and {x2.dtype}: convert one of them")
        xp, dtype = array_namespace(x1), x1.dtype
        steps = self._program(tuple(x1.shape[1:]))
        images = (x1,) if x2 is None or symmetric else (x1, x2)
        parts = tuple(flat(x) for x in images)
        shape = (parts[0].shape[0], parts[-1].shape[0])
        followed = image_engine.pixel_pairs_followed(steps, tuple(x1.shape[1:]))
        most = max(1, min(2048, int((PIXEL_PAIRS_PER_BLOCK / followed) ** 0.5)))
        evaluate, other = partial(_block, self, asked), None if symmetric else x2
        if executor is not None:
            check_executor(executor, *parts)
            self._warn_of(max(self._rows(x).error for x in images))  # warnings in other processes would be lost
        if store is not None:
            if any(o is not None for o in out):
                raise ValueError("store and out are two places for one result: give one of them")
            if executor is None:
                evaluate = partial(_block, self, asked, memory=memory)
            return evaluate_into_store(store, f"{self!r}", x1, other, asked, most, evaluate, progress, executor)
        pairs = shape[0] * shape[1] // (1 + symmetric)
        how = self._plan(x1, image_engine.field_precision(steps, images), pairs) if needs_images(steps) else None
        check_memory(parts, shape, sum(a and o is None for a, o in zip(asked, out, strict=True)), memory, how)
        results = [result_array(a, o, shape, parts[0]) for a, o in zip(asked, out, strict=True)]
        if 0 in shape:
            return results
        if executor is not None:
            every = list(blocks(shape, block_size(shape, most, cores()), symmetric))
            written = evaluate_blocks(results, every, range(len(every)), x1, other, evaluate, executor)
            for done, _ in enumerate(written, 1):
                if progress is not None:
                    progress(done, len(every))
            return results
        if how is not None:
            with single_threaded_blas():
                selves = [image_engine.self_kernels(how, x) for x in images] if how.recorded else []
                pools = [one.pools for one in selves]
                engine = image_engine.ImageEngine(how, images, shape, symmetric, results[0], results[1], pools)
                self._warn_of(engine.run(progress))
                for k, values in zip(results, (selves[0].nngp, selves[0].ntk) if selves else (), strict=False):
                    if symmetric and k is not None:
                        xp.fill_diagonal(k, xp.astype(values, dtype))
            return results
        with single_threaded_blas():  # the products are small: BLAS's own threads would only wait for each other
            inputs, rows, fine = plan_vectors(steps, parts)
            self._warn_of(rows.error)
            coarse = fine if dtype == xp.float64 else cast(fine, dtype)
            VectorEngine(inputs, rows, fine, coarse, shape, symmetric, *results).run(progress)
        return results


def kernel(spec: s.Layer, parametrization: Parametrization = DEFAULT_PARAMETRIZATION) -> Kernel:
    """The NNGP and NTK of `spec` at infinite width.

    Widths matter only if the parametrization makes them (standard: Theta grows with fan-in).  If features move
    (`SpectralMuP`, `MeanField`), these are the kernels at initialisation, of networks with the spec's own widths n:
    outputs of variance O(1/n), and an NTK, without learning rates, that training changes by order one.
    UnsupportedLayer, with the reason, for a layer without a rule and for a spec whose limit is not this recursion.

    >>> import minintk as mn
    >>> kernel(mn.Sequential(mn.ReLU(), mn.Dense(1)))
    Traceback (most recent call last):
    minintk.spec.shapes.UnsupportedLayer: ReLU acts on values that are not Gaussian at infinite width ...
    """
    spec = s.as_sequential(spec)
    if not isinstance(parametrization, Parametrization):
        raise TypeError(f"parametrization expects an object such as mn.NTK(), got {parametrization!r}")
    for shape in ((1,), (512, 512, 1), (512, 1)):
        with suppress(ValueError):  # the shape is not known yet, but a spec without a limit can be refused already
            program(spec, parametrization, shape)
    return Kernel(spec, parametrization)


def _block(
    which: Kernel, asked: tuple[bool, bool], x1: Array, x2: Array | None, memory: int | None = None
) -> list[Array | None]:
    """One block of the kernels, as stores and executors compute it."""
    return which._evaluate(x1, x2, asked, (None, None), memory, None, None, None)


def flat(x: Array) -> Array:
    """x : (N, H, W, C) as (N, d)."""
    return x.reshape((x.shape[0], prod(x.shape[1:])))


def result_array(asked: bool, out: Array | None, shape: tuple[int, int], like: Array) -> Array | None:
    """The array for a kernel: none if not requested, `out` if given, else a new one."""
    xp = array_namespace(like)
    if not asked:
        return None
    if out is None:
        return xp.empty(shape, dtype=like.dtype)
    array_namespace(like, out)
    if tuple(out.shape) != shape or out.dtype != like.dtype:
        raise ValueError(f"out expects shape {shape} and {like.dtype}, got {tuple(out.shape)} and {out.dtype}")
    return out


def check_memory(
    parts: tuple[Array, ...], shape: tuple[int, int], count: int, memory: int | None, how: image_engine.ImagePlan | None
) -> None:
    """MemoryError if results and working memory exceed the bound, or the free memory."""
    xp, size = array_namespace(*parts), parts[0].dtype.itemsize
    rows = sum(x.shape[0] for x in parts)
    tile = 2 * tile_width(xp, max(shape)) ** 2
    work = rows * (parts[0].shape[1] * size + 1000) + cores() * (10 * min(tile, shape[0] * shape[1]) * size + 2**23)
    need = count * shape[0] * shape[1] * size
    if how is not None:
        work = image_engine.working_memory(how, shape)
    bound = available_memory(xp) if memory is None else memory
    if need + work > bound:
        ways = ["stream the result to disk, store=PATH or out=numpy.memmap(...)", "evaluate it in blocks of rows"]
        ways += ["use float32"] * (size > 4)
        raise MemoryError(
            f"{count} kernel(s) of {shape[0]} x {shape[1]} in {parts[0].dtype} need {need / 1e9:.3g} GB and "
            f"{work / 1e9:.3g} GB to work in, but {bound / 1e9:.3g} GB are {'free' if memory is None else 'allowed'}: "
            f"{', '.join(ways[:-1])}, or {ways[-1]}"
            f"{'; the work grows with the number of pixel pairs: pool earlier, or take smaller images' if how else ''}"
        )
