"""Compute the NNGP and NTK matrices of infinitely wide networks: `kernel(spec)`.

    K(x, x')     = E f_i(x) f_i(x')                             for one output i, averaged over initialisations
    Theta(x, x') = sum_theta S df_i/dtheta(x) df_i/dtheta(x')   equal for every i, 0 between different outputs

as all widths go to infinity (Lee et al. 2019, eqs. (12) and (4); Jacot et al. 2018).  The input kernel is x x' / d.
S denotes the parametrization's learning-rate scales.  A small gradient step on a loss L changes f by -lr Theta dL/df.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial, reduce
from math import isclose, prod, sqrt
from typing import Any, NamedTuple

import numpy as np

from analytic.images.engine import image_diagonals, image_engine, image_kernels, images_per_tile
from analytic.images.plan import plan_images
from analytic.images.precision import check_entries
from analytic.images.rules import Flat, grid, has_masks, needs_images
from analytic.recursion.requests import Examples, Progress, Store, Wanted, blocks
from analytic.recursion.rules import lower
from analytic.recursion.state import Law, Program, RowState, run_law
from analytic.training.eigen import check_memory
from analytic.vectors.derivatives import BYTES_OF_A_PAIR, PARAMETERS, ROWS_AT_ONCE, differences, scaled
from analytic.vectors.engine import tile_shape, vector_diagonals, vector_engine, vector_kernels, working_memory
from minintk import spec as s
from minintk.arrays import Array, on_host
from minintk.doors import through
from minintk.layers.activation import pointwise
from minintk.spec.parametrization import NTK, Parametrization, Role, Row
from minintk.spec.shapes import Shape, Site, UnsupportedLayer, out_shape
from minintk.spec.windows import check_channels_last
from minintk.validate import number, whole

DEFAULT_PARAMETRIZATION = NTK()
"""The default parametrization."""
LARGEST_SILENT_ERROR = 1e-8
"""`Kernel` warns if the error bound of the quadratures exceeds this number."""


class Both(NamedTuple):
    """A pair of arrays for the NNGP and the NTK."""

    nngp: Array
    ntk: Array


class Derivatives(NamedTuple):
    """Derivatives of both kernels with respect to log w_std and log b_std, each changed in all layers at once."""

    w_std: Both
    b_std: Both


def program(spec: s.Layer, parametrization: Parametrization, shape: Shape) -> Program:
    """Return the recursion's steps for examples of `shape`; raise UnsupportedLayer if no recursion is known."""
    by = tuple((lower.dispatch(type(layer)), pointwise.dispatch(type(layer))) for layer in every(spec))
    return _program(spec, parametrization, shape, by)


def every(layer: s.Layer) -> Iterator[s.Layer]:
    """Yield the layer and all layers inside it."""
    yield layer
    for inner in layer.inside:
        yield from every(inner)


@lru_cache(maxsize=256)
def _program(spec: s.Layer, parametrization: Parametrization, shape: Shape, by: tuple[Any, ...]) -> Program:
    """Build the program.  `by`, the layers' rules and functions, is part of the cache key, so new rules take effect."""
    check_channels_last(spec, shape)
    steps = lower(spec, Site(shape), parametrization)
    run_law(steps, Law())
    steps = steps[1:] if steps and isinstance(steps[0], Flat) else steps  # flattened inputs are vectors
    pixels = prod(grid(out_shape(spec, shape)))
    return (*steps, Flat()) if pixels > 1 and needs_images(steps) else steps


class Wider(Parametrization):
    """Apply the parametrization `of` to hidden layers 16 times as wide.   seen : (place, SGD rate) of each tensor."""

    def __init__(self, of: Parametrization) -> None:
        self.of, self.seen = of, set[tuple[str, float]]()

    def row(self, role: Role, fan_in: int, fan_out: int, sigma: float) -> Row:
        into, out = (1 if role.place == end else 16 for end in ("input", "output"))
        row = self.of.row(role, fan_in * into, fan_out * out, sigma)
        self.seen.add((role.place, row.rate("sgd")))
        return replace(row, multiplier=row.multiplier * sqrt(into)) if role.kind == "weight" else row


@lru_cache(maxsize=256)
def check_rates(spec: s.Sequential, parametrization: Parametrization, shape: Shape) -> None:
    """Raise UnsupportedLayer for Sign or rates that make Theta depend on the width, and ValueError for Adam's rates."""
    if any(isinstance(layer, s.Sign) for layer in every(spec)):
        raise UnsupportedLayer(
            "Sign has no tangent kernel: E phi'^2 is infinite, from its jump.  Take .nngp(...) of it, or mn.Erf() "
            "with a large w_std before it"
        )
    wide = Kernel(spec, wider := Wider(parametrization))
    wide._program(shape)
    if all(place == "input" for place, _ in wider.seen) or all(rate == 1 for _, rate in wider.seen):
        return
    one = Examples(np.ones((1, *shape)), name="x")
    here, there = (float(k._rows(one).theta[0]) for k in (Kernel(spec, parametrization), wide))
    if not isclose(here, there, rel_tol=1e-6):
        raise UnsupportedLayer(
            f"under {parametrization!r} the tangent kernel J S J' has no limit that these widths show: at x = 1 it is "
            f"{here:.4g}, and {there:.4g} at 16 times the widths.  Take rates for which it is of order one, as in "
            "mn.SpectralMuP(), and 0 (c = inf in mn.ABC) for tensors whose share vanishes"
        )


@dataclass(frozen=True)
class Kernel:
    """The NNGP and NTK of an infinitely wide network; built by `kernel`.

    Examples x : (N, *shape) are NumPy or CuPy arrays, float32 or float64, and kernels are arrays of that library and
    precision.  Errors relative to sqrt(k(x, x) k(x', x')) are usually a few times 1e-15 (1e-7 in float32), even for
    nearly parallel, equal, opposite and zero rows.  `error` bounds the larger errors of activations without closed
    forms, and of layers that amplify rounding errors of small angles (chaotic phase, as for erf and tanh at w_std >=
    3).  With sin and large pre-activations u, kernels depend on differences between the rows' norms as small as 1/|u|
    of these norms.  The errors of nearly parallel rows can then be |u| times the precision.

    Range: at every layer, a variance must be 0 or lie between 1e-306 and 1e306, so |x| / sqrt(d) can usually range from
    1e-153 to 1e153.  Results must be in the dtype's range.  Otherwise, a ValueError names the row.  If the first layer
    has a random bias, rows with |x| / sqrt(d) < 1e-153 count as 0.  Float32 results below 1e-38 have fewer digits.

    If the network has convolutions or pooling, the recursion runs pixel by pixel on images (N, H, W, C) and sequences
    (N, L, C).  The NNGP is usually as accurate as for vectors, and so is the NTK of images that are equal, opposite or
    black.  For other images, the NTK can depend on angles known only to the square root of the precision.  Such angles
    occur between pixels nearly opposite before a kink of phi, nearly parallel after pooling, or in collinear windows of
    very different norms.  Many such angles cause errors of up to 1e-8 in the NTK (1e-3 in float32), and of up to 1e-9
    (1e-4 in float32) in the NNGP of later layers.  If a bias shifts opposite images before a saturated sigmoid, the
    errors for these images are |u|^2 times the precision.  If the images' root mean squares differ by a factor R,
    errors grow by about R times the precision (float64's if R > 100).  Raises ValueError if R > 1e8, or if a root mean
    square (with the first bias) is below 1e-135 or above about 1e150, except for ReLU-like networks without biases.

    On a CPU, results have the same bits in every call: they depend on inputs, libraries and processor, but not on the
    number of threads or the load.  Results with and without `store` or `executor` have the same bits.

    With Numba (`pip install minintk[fast]`), image kernels of closed-form activations take about a fifth of the time.
    Small image kernels do not use Numba, because loading it takes about 0.25 s.

    x2 : M examples; defaults to x1.  With `minintk.Dropout`, x2 always has its own masks.  Hence K(x, x) of an example
        with itself appears only on the diagonal of nngp(x1), and not in nngp(x1, x1) or nngp(x1, x1.copy()).
    memory : bound, in bytes, on the memory that the call adds, including results; by default all free memory within the
        control group's limit.  Loading Numba needs another 130 MB once, and compiling for its disk cache needs 40 MB.
        MemoryError is raised before the pairs are computed if the result and the working arrays do not fit.
    out : an array, such as a numpy.memmap, of the result's shape and precision, to fill; for `both`, a pair.
    store : a folder for the result and a record of the finished blocks.  If the process is killed, the same call
        resumes and gives the same bytes; processes that use the same store share the work (docs/long-runs.md).  The
        result is a read-only numpy.memmap of nngp.npy or ntk.npy in this folder.
    progress : called as progress(done, total) after each tile or block, from several threads but never concurrently.
    executor : a `concurrent.futures.Executor` that computes blocks of the result on one core each; by default, threads
        of this process compute them.  Pass an executor to use other machines or many cores; for two cores, use threads.

    Raises TypeError for integer arrays or mixed libraries, and ValueError for a wrong shape, NaN or infinity.
    """

    spec: s.Sequential
    parametrization: Parametrization = DEFAULT_PARAMETRIZATION

    def nngp(
        self, x1: Array, x2: Array | None = None, *, memory: int | None = None, out: Array | None = None,
        store: Store = None, progress: Progress | None = None, executor: Executor | None = None,
    ) -> Array:  # fmt: skip
        """Compute K(x1, x2), (N, M), or K(x1, x1) if x2 is None.

        >>> import numpy as np, minintk as mn
        >>> x = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
        >>> kernel(mn.Sequential(mn.Dense(512, w_std=2**0.5), mn.ReLU(), mn.Dense(1))).nngp(x).round(4)
        array([[0.5   , 0.1592, 0.    ],
               [0.1592, 0.5   , 0.    ],
               [0.    , 0.    , 0.    ]])
        """
        wanted = Wanted((True, False), (out, None), memory, progress, self._warn)
        return self._kernels(x1, x2, wanted, store, executor)[0]

    def ntk(
        self, x1: Array, x2: Array | None = None, *, memory: int | None = None, out: Array | None = None,
        store: Store = None, progress: Progress | None = None, executor: Executor | None = None,
    ) -> Array:  # fmt: skip
        """Compute Theta(x1, x2), (N, M), or Theta(x1, x1) if x2 is None."""
        wanted = Wanted((False, True), (None, out), memory, progress, self._warn)
        return self._kernels(x1, x2, wanted, store, executor)[1]

    def both(
        self, x1: Array, x2: Array | None = None, *, memory: int | None = None, out: tuple[Array, Array] | None = None,
        store: Store = None, progress: Progress | None = None, executor: Executor | None = None,
    ) -> Both:  # fmt: skip
        """Compute (nngp, ntk), each (N, M), in one pass, which takes little longer than computing only the NTK."""
        wanted = Wanted((True, True), out or (None, None), memory, progress, self._warn)
        return Both(*self._kernels(x1, x2, wanted, store, executor))

    def pixels(self, x1: Array, x2: Array | None = None, *, equal: bool = False, memory: int | None = None) -> Both:
        """Compute both kernels, (N, M, H, W, H', W'), for all pairs of pixels of a network whose output has pixels.

            K(p, p') = E f(p) f'(p'),   Theta(p, p') = sum_theta S df(p)/dtheta df'(p')/dtheta

        for one channel f(p) at pixel p of x, and f'(p') at pixel p' of x'.  The means over p = p' are `nngp` and `ntk`.
        The means over all pairs are the kernels of the network followed by a `GlobalAvgPool`.

        equal : True to compute only the pairs p = p', (N, M, H, W).  This is fast without pooling or attention.
        memory : as in `Kernel`.   For sequences, the shapes are (N, M, L, L') and (N, M, L).   Raises ValueError if the
        network ends in vectors, and UnsupportedLayer for Dropout, because its masks change K(p, p) of x with itself.

        >>> import numpy as np, minintk as mn
        >>> x = np.arange(6.0).reshape(1, 2, 3, 1)
        >>> k = kernel(mn.Conv2d(8, 1))
        >>> k.pixels(x).nngp[0, 0, 1, 2], k.pixels(x, equal=True).ntk[0, 0]        # x x', of pixel 5 with all others
        (array([[ 0.,  5., 10.],
               [15., 20., 25.]]), array([[ 0.,  1.,  4.],
               [ 9., 16., 25.]]))
        """
        inputs = Examples(x1, x2)
        steps, grid = self._program(inputs.example), out_shape(self.spec, inputs.example)[:-1]
        if not grid:
            raise ValueError(
                f"pixels expects a network that ends in pixels, got {self.spec!r}: leave out what makes a vector of "
                "them, mn.Flatten() or mn.GlobalAvgPool(), and what follows"
            )
        if has_masks(steps):
            raise UnsupportedLayer("pixels does not know the masks of Dropout: leave the layer out")
        check_rates(self.spec, self.parametrization, inputs.example)
        steps, P = steps[:-1] if steps and isinstance(steps[-1], Flat) else steps, prod(grid)
        warn = partial(self._warn, level=4)
        wanted = Wanted((True, True), (None, None), memory, None, warn, pixels=(P, 1) if equal else (1, P))
        (N, M), xp = inputs.shape, inputs.xp
        found: list[Any] = image_kernels(steps, inputs, wanted)
        if equal:
            first, last = tuple(range(len(grid))), tuple(range(-len(grid), 0))
            return Both(*(xp.moveaxis(k.reshape((*grid, N, M)), first, last) for k in found))
        return Both(*(xp.moveaxis(k.reshape((N, *grid, M, *grid)), 1 + len(grid), 1) for k in found))

    def diag(self, x: Array) -> Both:
        """Compute both kernels' diagonals, (N,), in O(N) time, without computing the kernels of different examples.

        >>> import numpy as np, minintk as mn
        >>> kernel(mn.Sequential(mn.Dense(512, w_std=2**0.5), mn.ReLU(), mn.Dense(1))).diag(np.eye(2))
        Both(nngp=array([0.5, 0.5]), ntk=array([1., 1.]))
        """
        inputs = Examples(x, name="x")
        check_rates(self.spec, self.parametrization, inputs.example)
        rows, xp = self._rows(inputs), inputs.xp
        return Both(xp.astype(rows.q, inputs.dtype), xp.astype(rows.theta, inputs.dtype))

    def derivatives(self, x1: Array, x2: Array | None = None) -> Derivatives:
        """Compute derivatives, (N, M), of both kernels with respect to log w_std and log b_std, changed in all layers.

        The finite differences in float64 take as long as four calls of `both`, and have relative errors of about 1e-9.
        Raises MemoryError before any work if the result does not fit into memory.  Raises ValueError, naming the
        examples, if a derivative exceeds the range of the inputs' precision.

        >>> import numpy as np, minintk as mn
        >>> k = kernel(mn.Sequential(mn.Dense(512, w_std=2**0.5), mn.ReLU(), mn.Dense(1)))
        >>> k.derivatives(np.eye(2)).w_std.nngp.round(4)          # K is a product of two w_std^2: 4 K
        array([[2.    , 0.6366],
               [0.6366, 2.    ]])
        """
        inputs, _ = self._inputs(x1, x2)
        check_rates(self.spec, self.parametrization, inputs.example)
        (N, M), xp = inputs.shape, inputs.xp
        need = 4 * N * M * inputs.dtype.itemsize + BYTES_OF_A_PAIR * min(N, ROWS_AT_ONCE) * min(M, ROWS_AT_ONCE)
        what = f"the derivatives of kernels of {N} x {M} examples"
        check_memory(xp, what, need, "take fewer rows at a time, k.derivatives(x[:1000], x)")
        for name, x in zip(("x1", "x2"), inputs.x):  # so that errors name a row of the inputs, not of a block
            self._rows(Examples(x, name=name))
        found, wide = xp.empty((2, 2, N, M), dtype=inputs.dtype), [xp.astype(x, xp.float64) for x in inputs.x]
        with np.errstate(over="ignore", invalid="ignore"):  # `check_entries` reports overflow
            for i, j in blocks(inputs.shape, ROWS_AT_ONCE, inputs.symmetric):
                own = inputs.symmetric and i == j
                for k, name in enumerate(PARAMETERS):
                    of = differences(partial(self._scaled, name), wide[0][i], None if own else wide[-1][j])
                    for one, out in zip(of, found[k], strict=True):
                        check_entries(inputs, i, j, one, 1, "derivative")
                        out[i, j] = one
                        if inputs.symmetric:
                            out[j, i] = one.T
        return Derivatives(*(Both(*one) for one in found))

    __array_ufunc__ = None  # so that a NumPy number times a kernel is a kernel

    def __add__(self, other: Kernel) -> Kernel:
        """Return the kernel of f_1 + f_2 for independent networks (`minintk.Sum`): K_1 + K_2, Theta_1 + Theta_2.

        `c * k` and `k / c` multiply or divide K and Theta by c > 0, for the network sqrt(c) f or f / sqrt(c).  `k *
        other` and `k ** 2` are the kernels of f_1 f_2 (`minintk.Product`): K = K_1 K_2, Theta = Theta_1 K_2 + K_1
        Theta_2, elementwise, or per pixel if the networks end in pixels.  The results have their own spec and can be
        passed to posterior, ensemble and estimators.  Raises ValueError if parametrizations differ or c <= 0.  Raises
        UnsupportedLayer unless one network ends with weights; for a product, weights at its beginning suffice.

        >>> import numpy as np, minintk as mn
        >>> one, two = kernel(mn.Dense(1)), kernel(mn.Sequential(mn.Dense(64), mn.ReLU(), mn.Dense(1)))
        >>> x = np.eye(2)
        >>> bool(np.allclose((one + 2 * two).ntk(x), one.ntk(x) + 2 * two.ntk(x), rtol=1e-14))
        True
        >>> bool(np.allclose((one * two).nngp(x), one.nngp(x) * two.nngp(x), rtol=1e-14))
        True
        """
        return self._with(s.Sum, other)

    def __radd__(self, other: object) -> Kernel:  # sum([k1, k2]) starts from 0
        return self if isinstance(other, int) and other == 0 else self._with(s.Sum, other)

    def __truediv__(self, c: float) -> Kernel:
        return self * (1 / number("kernel / c", c))

    def __pow__(self, degree: int) -> Kernel:
        return reduce(Kernel.__mul__, [self] * whole("kernel ** degree", degree, 1))

    def __mul__(self, other: Kernel | float) -> Kernel:
        if isinstance(other, Kernel):
            return self._with(s.Product, other)
        factor = s.Scale(sqrt(number("c * kernel", other)))
        return kernel(s.Sequential(*self.spec, factor), self.parametrization)

    __rmul__ = __mul__

    def _with(self, join: type[s.Branches], other: Any) -> Kernel:
        if not isinstance(other, Kernel):
            raise TypeError(f"expected another kernel, such as analytic.kernel(spec), got {other!r}")
        if other.parametrization != self.parametrization:
            raise ValueError(
                f"expected one parametrization, got {self.parametrization!r} and {other.parametrization!r}"
            )
        return kernel(join(self.spec, other.spec), self.parametrization)

    def _scaled(self, name: str, factor: float) -> Kernel:
        return Kernel(s.as_sequential(scaled(self.spec, name, factor)), self.parametrization)

    def error(self, x: Array) -> float:
        """Bound the errors of both kernels for the rows of x, at any angle, relative to sqrt(k(x, x) k(x', x')).

        No layer amplifies the quadratures' errors e_l, so they contribute 2 sum_l e_l.  For vectors, we add 4 eps sum_l
        (chi_{l+1} ... chi_L)^1/2, because a layer multiplies small squared angles by chi (docs/guide/activations.md).
        For Sign, chi and the result are inf.  If phi has kinks or large arguments, pairs of correlation c have an error
        e_l |c|^1024.  A result can depend on the other rows, so two calls can differ by up to the sum of their errors.
        """
        if any(isinstance(layer, s.Sign) for layer in every(self.spec)):
            return float("inf")
        inputs, roundings = Examples(x, name="x"), through("roundings", lambda *_: 0.0)
        steps, error = self._program(inputs.example), 2 * self._rows(inputs).error
        return error if needs_images(steps) or 0 in inputs.shape else error + 4 * float(roundings(steps, inputs))

    def _program(self, shape: Shape) -> Program:
        return program(self.spec, self.parametrization, shape)

    def _inputs(self, x1: Array, x2: Array | None) -> tuple[Examples, Program]:
        """Check the inputs; return them and the steps.  With masks, x2 is treated as new data even if x2 is x1."""
        inputs = Examples(x1, x2)
        steps = self._program(inputs.example)
        return (inputs if x2 is None or not has_masks(steps) else Examples(x1, x2[:])), steps

    def _rows(self, inputs: Examples) -> RowState:
        steps = self._program(inputs.example)
        return image_diagonals(steps, inputs) if needs_images(steps) else vector_diagonals(steps, inputs)

    def _kernels(
        self, x1: Array, x2: Array | None, wanted: Wanted, store: Store = None, executor: Executor | None = None
    ) -> list[Any]:  # one entry per kernel, None if not requested
        """Check the inputs, and compute the kernels of images or vectors, in blocks if a store or executor is given."""
        inputs, steps = self._inputs(x1, x2)
        if wanted.asked[1]:
            check_rates(self.spec, self.parametrization, inputs.example)
        images = needs_images(steps)
        if store is None and executor is None:
            if 0 in inputs.shape:
                return wanted.arrays(inputs, 0)
            if images:
                return image_kernels(steps, inputs, wanted)
            wanted.check(inputs, working_memory(inputs))  # fail before the rows pass through all layers
            return vector_kernels(steps, inputs, wanted)
        if (by_blocks := through("blocks")) is None:
            raise ImportError("store and executor need analytic.large, which was taken away: leave them out")
        begin: Any
        if images:
            plan = plan_images(steps, inputs)
            unit, begin = images_per_tile(plan, max(inputs.shape)), partial(image_engine, plan, inputs, wanted.asked)
        else:
            unit, begin = tile_shape(inputs.xp, inputs.shape)[0], partial(vector_engine, steps, inputs, wanted.asked)
        block, unit = partial(self._block, inputs.example), max(1, unit) if on_host(inputs.xp) else 1
        found: list[Any] = by_blocks(steps, inputs, wanted, unit, begin, block, repr(self), store, executor)
        return found

    def _block(self, example: Shape, block: Any) -> tuple[list[Array | None], float]:
        """Return one block of the kernels for a store or an executor, and the error bound of its quadratures."""
        found: tuple[list[Array | None], float] = block.under(self._program(example)).found()
        return found

    def _warn(self, error: float, level: int = 5) -> None:
        """Warn the caller of a kernel, `level` frames up, if the quadratures' bound exceeds LARGEST_SILENT_ERROR."""
        if error > LARGEST_SILENT_ERROR:
            warnings.warn(
                f"the kernel of {self.spec!r} is by quadrature and exact to {error:.1g} only, relative to "
                "sqrt(k(x, x) k(x', x')), at the worst angle: phi has kinks or large inputs; scale x or w_std down",
                stacklevel=level,
            )


def kernel(spec: s.Layer, parametrization: Parametrization = DEFAULT_PARAMETRIZATION) -> Kernel:
    """Return the `Kernel` (NNGP and NTK) of `spec` at infinite width.

    parametrization : its learning-rate scales enter Theta.  Unless all are 1, computing Theta raises UnsupportedLayer
    if Theta depends on hidden widths other than through their ratios.  In the standard and PyTorch parametrizations,
    Theta has no limit.  As in neural-tangents, we then compute Theta's leading order, which grows with the spec's
    widths.  If features can move (`SpectralMuP`, `MeanField`), the kernels are those at initialisation, and training
    changes Theta by order one.  The variance K of the outputs is then O(1/n), and is computed for the spec's widths n.
    Raises UnsupportedLayer if a layer has no rule, or if the limit does not follow this recursion.

    >>> import minintk as mn
    >>> kernel(mn.Sequential(mn.ReLU(), mn.Dense(1)))
    Traceback (most recent call last):
    minintk.spec.shapes.UnsupportedLayer: ReLU acts on values that are not Gaussian at infinite width ...
    """
    spec = s.as_sequential(spec)
    if not isinstance(parametrization, Parametrization):
        raise TypeError(f"parametrization expects an object such as mn.NTK(), got {parametrization!r}")
    for shape in ((1,), (512, 512, 1), (512, 1)):
        with suppress(ValueError):  # shapes are unknown here, but specs without a limit can be rejected
            program(spec, parametrization, shape)
    return Kernel(spec, parametrization)
