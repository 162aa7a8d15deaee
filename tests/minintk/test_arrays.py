"""Test array libraries, devices, and the checks of inputs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from minintk import arrays, memory


def test_the_namespace_of_numpy() -> None:
    xp = arrays.array_namespace(np.ones(3), np.ones(2))
    assert arrays.library(xp) == "numpy"
    assert arrays.on_host(xp)
    assert arrays.device_namespace("cpu") is xp
    assert arrays.scipy_module(xp, "special").erf(0.0) == 0


@pytest.mark.parametrize("other", [[1.0], (1.0,), "x"])
def test_what_is_no_array(other: Any) -> None:
    with pytest.raises(
        TypeError, match=r"expected arrays of one library, NumPy or CuPy, got .*: move them to one side"
    ):
        arrays.array_namespace(np.ones(3), other)


def test_mixed_libraries() -> None:
    """Passing arrays of two libraries (here NumPy and the CuPy stand-in) in one call raises TypeError."""
    from tests.kit.arrays_under_test import namespace

    theirs = namespace("standin").asarray(np.ones(3))
    with pytest.raises(TypeError, match=r"one library, NumPy or CuPy, got numpy\.ndarray, standin\.ndarray: move them"):
        arrays.array_namespace(np.ones(3), theirs)


def test_to_host_and_back() -> None:
    a = np.ones(3)
    assert arrays.to_host(a) is a
    assert arrays.to_library(a, arrays.array_namespace(a)) is a


def test_an_unknown_device() -> None:
    with pytest.raises(ValueError, match="device expects 'cpu' or 'gpu', got 'tpu'"):
        arrays.device_namespace("tpu")


@pytest.mark.parametrize(
    ("fails", "error", "remedy"),
    [
        ("cupy", ModuleNotFoundError("No module named 'cupy'", name="cupy"), r": pip install 'minintk\[gpu\]' .*gpu13"),
        ("array", ModuleNotFoundError("No module", name="array_api_compat"), ": pip install array-api-compat, or"),
        (
            "linalg",
            ImportError("libcublas.so.12: cannot open shared object file"),
            "CUDA's libraries are not installed",
        ),
        ("cupy", RuntimeError("CuPy failed to load nvrtc64_120_0.dll"), "CUDA's libraries are not installed"),
        ("zeros", RuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected"), ": nvidia-smi has to list"),
        ("zeros", RuntimeError("cudaErrorInsufficientDriver"), ": nvidia-smi has to list a GPU, and a driver new"),
    ],
)
def test_no_gpu_is_said_with_the_remedy(
    fails: str, error: Exception, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def part(name: str) -> None:
        if name == fails:
            raise error

    def zeros(n: int) -> Any:
        part("zeros")
        return np.zeros(n)

    def imported(name: str) -> Any:
        part(name.rpartition(".")[2])
        return SimpleNamespace(zeros=zeros)

    monkeypatch.setattr(arrays, "import_module", imported)
    monkeypatch.setattr(arrays, "array_namespace", lambda *a: part("array"))
    with pytest.raises(RuntimeError, match=remedy) as caught:
        arrays.device_namespace("gpu")
    assert "needs CuPy, CUDA's libraries and an NVIDIA GPU" in str(caught.value)
    assert str(caught.value).endswith("or use device 'cpu'")


def test_available_memory_is_some() -> None:
    assert 2**20 < arrays.available_memory(arrays.array_namespace(np.ones(1))) <= 2**62


def test_check_finite_finds_the_first() -> None:
    a = np.ones((3, 4))
    arrays.check_finite("a", a)
    a[1, 2], a[2, 0] = np.inf, -np.inf
    with pytest.raises(ValueError, match=r"a holds 2 values that are NaN or infinite, the first at index \(1, 2\)"):
        arrays.check_finite("a", a)
    arrays.check_finite("a", np.full(100, 3e38, np.float32))  # the sum overflows, no entry does
    arrays.check_finite("a", np.empty((0, 3)))


@pytest.mark.parametrize("dtype", [int, bool, complex, np.float16, np.longdouble])
def test_check_floating_takes_two_dtypes(dtype: Any) -> None:
    if np.dtype(dtype) == np.float64:
        return  # a platform whose long double is double
    with pytest.raises(
        TypeError, match=r"a expects float32 or float64, got .*: convert it, a\.astype\(numpy\.float64\)"
    ):
        arrays.check_floating("a", np.ones(3, dtype))
    arrays.check_floating("a", np.ones(3, np.float32))


def test_class_labels_are_told_to_become_rows() -> None:
    with pytest.raises(TypeError, match=r"^y expects .* got int64: convert it, numpy\.eye\(C\)\[y\] for labels of C"):
        arrays.check_floating("y", np.arange(3))


def test_check_floating_names_what_is_no_array() -> None:
    for other in (None, 3.0, 1, "x", [1.0], (1.0,)):
        with pytest.raises(TypeError, match=r"^a: expected arrays of one library, NumPy or CuPy, got builtins\."):
            arrays.check_floating("a", other)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"^expected arrays of one library, NumPy or CuPy, got builtins\."):
            arrays.array_namespace(np.ones(2), other)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"a expects an array, got a numpy\.matrix: convert it, numpy\.asarray\(a\)"):
        arrays.check_floating("a", np.ones((2, 2)).view(np.matrix))
    with pytest.raises(TypeError, match="a expects float32 or float64, got >f8"):
        arrays.check_floating("a", np.ones(2, ">f8"))


def test_a_result_tells_of_its_argument() -> None:
    bad = np.array([1.0, np.nan])
    arrays.check_finite_by(np.ones(1), "a", bad)  # only the result is checked
    arrays.check_finite_by(np.full(1, np.inf), "a", np.ones(2))  # the argument is finite: no error
    with pytest.raises(ValueError, match=r"a holds 1 values that are NaN or infinite, the first at index \(1,\)"):
        arrays.check_finite_by(np.full(1, np.inf), "a", bad)


def test_check_examples() -> None:
    arrays.check_examples("x", np.ones((2, 3)))
    arrays.check_examples("x", np.ones((2, 4, 5, 3)), (4, 5, 3))
    with pytest.raises(ValueError, match=r"x expects shape \(N, d\), got \(3,\)"):
        arrays.check_examples("x", np.ones(3))
    with pytest.raises(
        ValueError, match=r"x expects shape \(N, 4, 5\), got \(4, 5\): a single example needs .* x\[None\]"
    ):
        arrays.check_examples("x", np.ones((4, 5)), (4, 5))


def test_cache_slices_cover_the_last_axis() -> None:
    for shape in ((7,), (200_000,), (3, 100_000), (0,), (70_000, 2)):
        a = np.zeros(shape)
        for piece in memory.cache_slices(a):
            a[..., piece] += 1
        assert np.all(a == 1)


def test_masked_arrays_are_refused_wherever_data_enters() -> None:
    """Masked arrays are refused: sums skip masked values, so `check_finite` would miss a masked NaN."""
    import analytic as an
    import minintk as mn

    hidden = np.ma.masked_invalid(np.array([[1.0, np.nan], [0.5, 2.0]]))
    whole, y = np.ones((2, 2)), np.ones((2, 1))
    spec = mn.Sequential(mn.Dense(3), mn.ReLU(), mn.Dense(1))
    net, kernel = mn.Network(spec, (2,)), an.kernel(spec)
    theta = net.init(np.random.default_rng(0))
    calls: list[Any] = [
        lambda: net(theta, hidden),
        lambda: mn.ntk(net, theta, hidden),
        lambda: kernel.both(hidden),
        lambda: kernel.ntk(whole, hidden),
        lambda: kernel.diag(hidden),
        lambda: an.posterior(kernel, whole, np.ma.masked_array(y)),
        lambda: an.ensemble(kernel, hidden, y),
        lambda: an.ensemble(kernel, whole, y).predict(hidden),
        lambda: an.gradient_flow(np.ma.masked_array(np.eye(2)), y),
        lambda: an.gradient_flow(np.eye(2), y).predict(1.0, f0=np.ma.masked_array(y)),
        lambda: list(mn.train(net, theta, hidden, y, loss=mn.mse, optimizer=mn.SGD(lr=0.1), steps=1)),
        lambda: list(
            mn.train(net, theta, whole, np.ma.masked_array(y), loss=mn.mse, optimizer=mn.SGD(lr=0.1), steps=1)
        ),
        lambda: net(np.ma.masked_array(theta), whole),
    ]
    for call in calls:
        with pytest.raises(TypeError, match=r"without a mask, got a numpy\.ma\.MaskedArray: fill it"):
            call()


@pytest.mark.parametrize(("limit", "used", "most"), [(0, 5, 112), (50, 5, 45), (10, 20, 0), (10**6, 5, 112)])
def test_memory_of_a_gpu_is_what_its_pool_may_take(
    limit: int, used: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 bytes on the device and 12 in the pool are available, up to the pool's limit. A limit of 0 means no limit."""
    pool = SimpleNamespace(free_bytes=lambda: 12, get_limit=lambda: limit, used_bytes=lambda: used)
    runtime = SimpleNamespace(memGetInfo=lambda: (100, 1000))
    cupy = SimpleNamespace(cuda=SimpleNamespace(runtime=runtime), get_default_memory_pool=lambda: pool)
    monkeypatch.setattr(arrays, "import_module", lambda name: cupy)
    monkeypatch.setattr(arrays, "library", lambda xp: "cupy")
    assert arrays.available_memory(None) == most


class Device:
    """A stand-in for the part of CuPy's Device that the library uses."""

    def __init__(self, place: int = 0) -> None:
        self.id = place


class Placed(np.ndarray):
    """An array whose `device` attribute names its GPU."""

    device: Any = Device(1)


def test_an_array_on_a_gpu_that_is_not_the_current_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    a = np.ones(3).view(Placed)
    with pytest.raises(ValueError, match=r"a expects an array on GPU 0.* got one on GPU 1: .*cupy.cuda.Device\(1\)"):
        arrays.check_floating("a", a)
    monkeypatch.setattr(Placed, "device", Device(0))
    arrays.check_floating("a", a)
