"""Data sets: the embedded digits, the readers on files written here, every method against its definition."""

import builtins
import gzip
import os
import pickle
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minintk.datasets import Dataset, cifar10, cube, digits, mnist, sphere, teacher_student
from minintk.datasets.idx import read_idx
from minintk.datasets.read_cifar import CLASSES

Array = np.ndarray[Any, Any]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def small(N: int = 12, shape: tuple[int, int, int] = (4, 5, 2), *, raw: bool = False) -> Dataset:
    """Random images in three classes, as bytes where `raw`."""
    images = rng(1).integers(0, 256, (N, *shape), dtype=np.uint8)
    return Dataset(images if raw else images / 255, np.arange(N) % 3, classes=("a", "b", "c"))


# ---------------------------------------------------------------------------------------------- digits


def test_digits_are_the_published_ones() -> None:
    from sklearn.datasets import load_digits

    theirs, ours = load_digits(), digits()
    assert np.array_equal(ours.x * 16, theirs.data)
    assert np.array_equal(ours.labels, theirs.target)
    assert ours.x.dtype == np.float64
    assert "Alpaydin" in ours.attribution
    assert "CC BY 4.0" in ours.attribution


def test_digits_in_float32() -> None:
    x, y = digits(dtype=np.float32).parity()
    assert x.dtype == y.dtype == np.float32
    assert np.array_equal(x, digits().x)  # multiples of 1/16 are exact


def test_parity_is_plus_one_for_even() -> None:
    data = digits()
    _, y = data.parity()
    assert y.shape == (1797, 1)
    assert np.array_equal(y[:, 0] == 1, data.labels % 2 == 0)
    assert set(np.unique(y)) == {-1.0, 1.0}
    _, of_a_pair = data.pair(8, 3).parity()  # goes by the names, not by the numbers of the labels
    assert np.array_equal(of_a_pair[:, 0] == 1, data.labels[(data.labels == 3) | (data.labels == 8)] == 8)


# --------------------------------------------------------------------------------- what a Dataset refuses


@pytest.mark.parametrize(
    ("raw", "labels", "options", "error", "says"),
    [
        (np.ones((2, 3)), np.zeros(3, int), {}, ValueError, r"shape \(2,\)"),
        (np.ones((2, 3)), np.zeros(2), {}, ValueError, "whole number a label"),
        (np.ones((2, 3)), np.array([0, 5]), {"classes": ("a", "b")}, ValueError, "0 to 1, got 0 to 5"),
        (np.ones((2, 3)), np.array([0, -1]), {}, ValueError, "got -1"),
        (np.array([[1.0], [np.nan]]), np.zeros(2, int), {}, ValueError, "NaN or infinite"),
        (np.ones((2, 3), int), np.zeros(2, int), {}, TypeError, "float32 or float64"),
        (np.ones(2), np.zeros(2, int), {}, ValueError, r"\(N, d\)"),
        (np.ones(2, np.uint8), np.zeros(2, int), {}, ValueError, r"\(N, d\)"),
        (np.ones((2, 3), np.uint8), np.zeros(2, int), {"dtype": int}, TypeError, "float32 or float64"),
        (np.ones((2, 3)), np.zeros(2, int), {"image_shape": (2, 2, 1)}, ValueError, "do not fit"),
        ([[1.0]], np.zeros(1, int), {}, TypeError, "NumPy arrays, got list"),
    ],
)
def test_dataset_refuses(raw: Any, labels: Any, options: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        Dataset(raw, labels, **options)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda d: d.pair("a", "zebra"), ValueError, "no class 'zebra': its classes are a, b, c"),
        (lambda d: d.pair("a", 7), ValueError, "no class 7"),
        (lambda d: d.pair("a", 0), ValueError, "two different classes"),
        (lambda d: d.binary(-1), ValueError, "no class -1"),
        (lambda d: d.parity(), ValueError, "use binary"),
        (lambda d: d.pca(0), ValueError, "k from 1 to d = 40"),
        (lambda d: d.pca(41), ValueError, "k from 1 to d = 40, got 41"),
        (lambda d: d.pca(12), ValueError, "11 directions only"),  # 12 examples, centred
        (lambda d: d.pca(2, fit=digits()), ValueError, r"got \(64,\)"),
        (lambda d: d.pca(2, fit="train"), TypeError, "expects a Dataset"),
        (lambda d: d.pca(2).images(), ValueError, "no images"),
        (lambda d: d.pca(2).shifted(1, rng()), ValueError, "no images"),
        (lambda d: d.shifted(4, rng()), ValueError, "from 0 to 3, got 4"),
        (lambda d: d.shifted(1, 0), TypeError, "numpy.random.Generator, got 0"),
        (lambda d: d.subset(13, rng()), ValueError, "has 12"),
        (lambda d: d.subset(-1, rng()), ValueError, ">= 0"),
        (lambda d: d.subset(2.5, rng()), ValueError, "2.5"),
        (lambda d: d.split(10, 3, rng()), ValueError, r"10 \+ 3"),
        (lambda d: d.subset(3, np.random), TypeError, "default_rng"),
        (lambda d: d[3], TypeError, "slice or an array"),
        (lambda d: d.on_sphere(-1.0), ValueError, "radius > 0"),
        (lambda d: d.standardise(fit=d[:0]), ValueError, "no examples"),
    ],
)
def test_methods_refuse(call: Callable[[Dataset], Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call(small())


def test_constant_features_and_zero_rows_are_named() -> None:
    x = rng().standard_normal((5, 3))
    x[:, 1] = 7.0
    with pytest.raises(ValueError, match="1 of 3 features of data do not vary, the first is 1"):
        Dataset(x, np.zeros(5, int)).standardise()
    x[:, 1] = 0.1 + 1e-17 * np.arange(5)  # constant in floating point
    with pytest.raises(ValueError, match="do not vary"):
        Dataset(x, np.zeros(5, int)).standardise()
    x[[2, 4]] = 0.0
    with pytest.raises(ValueError, match="2 examples of data are zero"):
        Dataset(x, np.zeros(5, int)).on_sphere()


# ------------------------------------------------------------------------------------ methods do what they say


def test_bytes_and_floats_are_the_same_data() -> None:
    stored, scaled = small(raw=True), small()
    assert stored.raw.dtype == np.uint8
    assert np.array_equal(stored.x, scaled.x)
    chains: list[Callable[[Dataset], Dataset]] = [
        lambda d: d.shifted(2, rng(3)).flat(),
        lambda d: d.pair("b", "c").subset(4, rng(4)),
        lambda d: d.pca(3),
        lambda d: d.standardise().on_sphere(),
    ]
    for chain in chains:
        a, b = chain(stored), chain(scaled)
        assert np.array_equal(a.x, b.x)
        assert np.array_equal(a.labels, b.labels)
    assert stored.shifted(2, rng(3)).pair("a", "b").raw.dtype == np.uint8  # selecting keeps the bytes


def test_methods_leave_the_original_alone() -> None:
    data = small()
    before = data.x.copy()
    data.flat().standardise().pca(3).on_sphere().one_hot()
    data.shifted(1, rng()).binary("a")
    assert np.array_equal(data.x, before)


def test_images_and_flat_are_inverse() -> None:
    data = small()
    assert data.flat().x.shape == (12, 40)
    assert np.array_equal(data.flat().images().x, data.x)


@pytest.mark.parametrize("N", [200, 8])  # more examples than features, and fewer
def test_pca_against_the_definition(N: int) -> None:
    A = rng(5).standard_normal((20, 20))
    data = Dataset(rng(6).standard_normal((N, 20)) @ A + 3.0, np.zeros(N, int))
    k = 5
    z = data.pca(k).x
    assert np.allclose(z.mean(axis=0), 0, atol=1e-12)
    assert np.allclose(z.T @ z / N, np.eye(k), atol=1e-12)
    centred = data.x - data.x.mean(axis=0)
    _, s, Vt = np.linalg.svd(centred, full_matrices=False)
    unscaled = data.pca(k, whiten=False).x
    assert np.allclose(np.abs(unscaled), np.abs(centred @ Vt[:k].T), atol=1e-10)
    assert np.allclose(unscaled.var(axis=0), s[:k] ** 2 / N, rtol=1e-10)


def test_pca_of_the_test_set_is_the_training_sets_map() -> None:
    train, test = digits().split(1000, 300, rng())
    z = test.pca(7, fit=train).x
    both = Dataset(np.concatenate([train.x, test.x]), np.concatenate([train.labels, test.labels]))
    assert np.allclose(z, both.pca(7, fit=train).x[1000:], atol=1e-12)
    # an affine map that agrees with train.pca on the training set is the same map
    design = np.column_stack([train.x, np.ones(1000)])
    coefficients, *_ = np.linalg.lstsq(design, train.pca(7).x, rcond=None)
    assert np.allclose(z, np.column_stack([test.x, np.ones(300)]) @ coefficients, atol=1e-8)


def test_float32_stays_float32() -> None:
    data = Dataset(small().x.astype(np.float32), small().labels, classes=("a", "b", "c"))
    for each in (data.pca(3), data.standardise(), data.on_sphere(), data.shifted(1, rng()), data.flat()):
        assert each.x.dtype == np.float32
    assert data.one_hot(zero_mean=True)[1].dtype == data.binary("a")[1].dtype == np.float32
    assert np.allclose(np.abs(data.pca(3).x), np.abs(small().pca(3).x), atol=1e-4)


def test_standardise_pixels_share_their_channel() -> None:
    train, test = small(30), small(20)
    x = train.standardise().x
    assert np.allclose(x.mean(axis=(0, 1, 2)), 0)
    assert np.allclose(x.std(axis=(0, 1, 2)), 1)
    assert np.array_equal(train.flat().standardise().images().x, x)
    mean, std = train.x.mean(axis=(0, 1, 2)), train.x.std(axis=(0, 1, 2))
    assert np.allclose(test.standardise(fit=train).x, (test.x - mean) / std)
    features = Dataset(rng().standard_normal((30, 4)) * [1, 2, 3, 4], np.zeros(30, int)).standardise().x
    assert np.allclose(features.std(axis=0), 1)


def test_on_sphere() -> None:
    data = small().on_sphere()
    assert data.x.shape == (12, 4, 5, 2)
    assert np.allclose((data.x**2).sum(axis=(1, 2, 3)), 40)
    assert np.allclose(np.linalg.norm(small().flat().on_sphere(2.0).x, axis=1), 2.0)


def test_shifts_are_translations_with_zeros_moving_in() -> None:
    data, s = small(400), 2
    moved = data.shifted(s, rng(2)).x
    seen = np.zeros((2 * s + 1, 2 * s + 1), int)
    for image, result in zip(data.x, moved):
        found = [
            (dy, dx)
            for dy in range(-s, s + 1)
            for dx in range(-s, s + 1)
            if np.array_equal(result, _move(image, dy, dx))
        ]
        assert len(found) == 1
        seen[found[0][0] + s, found[0][1] + s] += 1
    # uniform on the 25 shifts: chi^2 with 24 degrees of freedom, as a z-score
    chi2 = float(((seen - 16) ** 2 / 16).sum())
    assert abs(chi2 - 24) / (2 * 24) ** 0.5 < 4
    assert np.array_equal(data.shifted(0, rng()).x, data.x)


def _move(image: Array, dy: int, dx: int) -> Array:
    """The definition: pixel (i, j) goes to (i + dy, j + dx) if that is inside."""
    H, W, _ = image.shape
    result = np.zeros_like(image)
    for i in range(H):
        for j in range(W):
            if 0 <= i + dy < H and 0 <= j + dx < W:
                result[i + dy, j + dx] = image[i, j]
    return result


@given(n_train=st.integers(0, 12), n_test=st.integers(0, 12), seed=st.integers(0, 99))
def test_split_is_disjoint_and_keeps_labels_with_examples(n_train: int, n_test: int, seed: int) -> None:
    data = Dataset(np.arange(24.0).reshape(24, 1), np.arange(24))
    train, test = data.split(n_train, n_test, rng(seed))
    assert (len(train), len(test)) == (n_train, n_test)
    assert len({*train.labels, *test.labels}) == n_train + n_test
    for part in (train, test):
        assert np.array_equal(part.x[:, 0], part.labels)
    again, _ = data.split(n_train, n_test, rng(seed))
    assert np.array_equal(again.labels, train.labels)


def test_pair_binary_and_one_hot() -> None:
    data = small()
    pair = data.pair("c", "a")
    assert pair.classes == ("c", "a")
    assert np.array_equal(pair.labels, np.where(data.labels[data.labels != 1] == 2, 0, 1))
    x, y = data.binary("c", "a")
    assert np.array_equal(x, data.x[data.labels != 1])
    assert np.array_equal(y[:, 0] == 1, data.labels[data.labels != 1] == 2)
    x, y = data.binary("c")
    assert len(x) == 12
    assert np.array_equal(y[:, 0], np.where(data.labels == 2, 1, -1))
    _, y = data.one_hot()
    assert np.array_equal(y.argmax(axis=1), data.labels)
    assert np.array_equal(y.sum(axis=1), np.ones(12))
    _, centred = data.one_hot(zero_mean=True)
    assert np.allclose(centred, y - 1 / 3)


# --------------------------------------------------------------------------------------------- generators


def test_sphere_is_uniform_on_the_sphere() -> None:
    n, d = 4000, 6
    x = sphere(n, d, rng())
    assert np.allclose((x**2).sum(axis=1), d)
    # E x x' = I; Var x_i x_j = d/(d+2) off the diagonal, 3d/(d+2) - 1 on it
    z = (x.T @ x / n - np.eye(d)) / np.sqrt(np.where(np.eye(d), 3 * d / (d + 2) - 1, d / (d + 2)) / n)
    assert np.abs(z).max() < 4.5
    assert np.abs(x.mean(axis=0) * np.sqrt(n)).max() < 4.5
    # E x_i^4 = 3d/(d+2) singles out the rotation-invariant direction; the spread is estimated
    fourth = x**4
    z = (fourth.mean(axis=0) - 3 * d / (d + 2)) / (fourth.std(axis=0) / np.sqrt(n))
    assert np.abs(z).max() < 4.5


def test_cube_has_fair_independent_coordinates() -> None:
    n, d = 4000, 5
    x = cube(n, d, rng())
    assert set(np.unique(x)) == {-1.0, 1.0}
    assert np.abs(x.mean(axis=0) * np.sqrt(n)).max() < 4.5
    pairs = (x.T @ x / n)[np.triu_indices(d, 1)]
    assert np.abs(pairs * np.sqrt(n)).max() < 4.5


def test_teacher_student() -> None:
    W = rng(9).standard_normal((5, 2))
    x, y = teacher_student(lambda x: np.tanh(x @ W), 2000, 5, rng(), noise=0.3)
    z = ((y - np.tanh(x @ W)).var() / 0.09 - 1) / np.sqrt(2 / y.size)
    assert abs(z) < 4
    x, y = teacher_student(lambda x: np.tanh(x @ W), 10, 5, rng())
    assert np.array_equal(y, np.tanh(x @ W))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: sphere(0, 3, rng()), "n expects a whole number >= 1, got 0"),
        (lambda: cube(3, 1.5, rng()), "d expects a whole number >= 1, got 1.5"),  # type: ignore[arg-type]
        (lambda: teacher_student(lambda x: x[:, 0], 4, 3, rng()), r"got \(4,\): one output is a column"),
        (lambda: teacher_student(lambda x: x / 0.0 * 0.0, 4, 3, rng()), "NaN or infinite"),
        (lambda: teacher_student(lambda x: x, 4, 3, rng(), noise=-1.0), "noise"),
    ],
)
def test_generators_refuse(call: Callable[[], Any], says: str) -> None:
    with np.errstate(all="ignore"), pytest.raises(ValueError, match=says):
        call()


# -------------------------------------------------------------------------------------------------- MNIST


def idx(array: Array, kind: int = 8) -> bytes:
    return bytes([0, 0, kind, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


IMAGES = rng(7).integers(0, 256, (6, 3, 4), dtype=np.uint8)
LABELS = np.array([3, 1, 4, 1, 5, 9], np.uint8)


def write_mnist(folder: Path, *, suffix: str = "", dotted: bool = False, prefix: str = "train") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pack = gzip.compress if suffix else bytes
    mark = ".idx" if dotted else "-idx"
    (folder / f"{prefix}-images{mark}3-ubyte{suffix}").write_bytes(pack(idx(IMAGES)))
    (folder / f"{prefix}-labels{mark}1-ubyte{suffix}").write_bytes(pack(idx(LABELS)))


@pytest.mark.parametrize("inside", ["", "mnist", "MNIST/raw"])
@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("dotted", [False, True])
def test_mnist_from_a_folder(tmp_path: Path, inside: str, suffix: str, dotted: bool) -> None:
    write_mnist(tmp_path / inside, suffix=suffix, dotted=dotted)
    data = mnist(tmp_path)
    assert data.raw.dtype == np.uint8
    assert np.array_equal(data.x, IMAGES.reshape(6, 12) / 255)
    assert data.images().x.shape == (6, 3, 4, 1)
    assert np.array_equal(data.labels, LABELS)
    assert data.classes == tuple("0123456789")
    assert mnist(tmp_path, dtype=np.float32).x.dtype == np.float32
    with pytest.raises(FileNotFoundError, match="t10k-images-idx3-ubyte"):
        mnist(tmp_path, "test")


def test_mnist_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_mnist(tmp_path, prefix="t10k")
    monkeypatch.setenv("MININTK_DATA", str(tmp_path))
    assert len(mnist(split="test")) == 6
    monkeypatch.setenv("MININTK_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match="MININTK_DATA expects a folder"):
        mnist()


@pytest.mark.parametrize("split", ["Train", "validation"])
def test_unknown_split(split: Any) -> None:
    for reader in (mnist, cifar10):
        with pytest.raises(ValueError, match="split expects 'train' or 'test'"):
            reader(split=split)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "begins nowhere"),
        (b"<html>not found", "begins 3c 68 74 6d"),
        (idx(IMAGES)[:9], "expects an IDX file"),
        (idx(IMAGES)[:-1], "promises 72 values .* holds 71"),
        (idx(IMAGES) + b"!", "holds 73"),
        (idx(IMAGES, kind=13), "bytes, beginning 00 00 08"),
        (gzip.compress(idx(IMAGES), mtime=0)[:-9], "damaged gzip"),
        (gzip.compress(idx(IMAGES), mtime=0)[:-8] + b"\0" * 8, "damaged gzip"),
        (b"\x1f\x8bnonsense", "damaged gzip"),
    ],
    ids=["empty", "web page", "header cut", "byte missing", "byte too many", "type", "gzip cut", "gzip sum", "no gzip"],
)
def test_damaged_idx_files(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=says):
        read_idx(path)


def test_mnist_files_that_do_not_belong_together(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(LABELS[:5]))
    with pytest.raises(ValueError, match="do not belong together"):
        mnist(tmp_path)


# ----------------------------------------------------------------------------------------------- CIFAR-10


def batch(seed: int, N: int = 5) -> dict[bytes, Any]:
    data = rng(seed).integers(0, 256, (N, 3072), dtype=np.uint8)
    labels = [int(c) for c in rng(seed).integers(0, 10, N)]
    return {b"batch_label": b"a batch", b"labels": labels, b"data": data, b"filenames": [b"a.png"] * N}


def write_cifar(folder: Path, names: list[str], protocol: int = 3) -> list[dict[bytes, Any]]:
    folder.mkdir(parents=True, exist_ok=True)
    batches = [batch(seed) for seed in range(len(names))]
    for name, content in zip(names, batches):
        (folder / name).write_bytes(pickle.dumps(content, protocol=protocol))
    return batches


TRAIN = [f"data_batch_{i}" for i in range(1, 6)]


@pytest.mark.parametrize("protocol", [3, 4])
@pytest.mark.parametrize("inside", ["", "cifar-10-batches-py"])
def test_cifar_from_a_folder(tmp_path: Path, inside: str, protocol: int) -> None:
    batches = write_cifar(tmp_path / inside, TRAIN, protocol)
    data = cifar10(tmp_path)
    assert data.name == "cifar10 train"
    assert data.classes == CLASSES
    assert data.x.shape == (25, 3072)
    assert data.labels.tolist() == [c for each in batches for c in each[b"labels"]]
    planes = np.concatenate([each[b"data"] for each in batches]).reshape(25, 3, 32, 32)
    for channel in range(3):  # channels last
        assert np.array_equal(data.images().raw[..., channel], planes[:, channel])


def test_cifar_as_python_2_wrote_it(tmp_path: Path) -> None:
    """The published files: protocol 2, byte strings as Python 2's str, arrays by numpy.core.multiarray."""
    data = rng(1).integers(0, 256, (1, 3072), dtype=np.uint8)

    def text(s: bytes) -> bytes:
        return b"U" + bytes([len(s)]) + s  # the opcode of a short str

    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n"
        + b"cnumpy\nndarray\nK\x00\x85" + text(b"b") + b"\x87R"  # _reconstruct(ndarray, (0,), 'b')
        + b"(K\x01K\x01M\x00\x0c\x86"  # (1, (1, 3072),
        + b"cnumpy\ndtype\n" + text(b"u1") + b"K\x00K\x01\x87R"  # dtype('u1', 0, 1)
        + b"(K\x03" + text(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"  # its state
        + b"\x89" + b"T" + struct.pack("<i", 3072) + data.tobytes() + b"tb"  # not Fortran, the bytes)
    )  # fmt: skip
    (tmp_path / "test_batch").write_bytes(
        b"\x80\x02}(" + text(b"data") + array + text(b"labels") + b"]K\x07a" + text(b"batch_label") + text(b"x") + b"u."
    )
    read = cifar10(tmp_path, "test")
    assert read.labels.tolist() == [7]
    assert np.array_equal(read.images().raw[0].transpose(2, 0, 1).ravel(), data[0])


def test_a_part_of_cifar_says_so(tmp_path: Path) -> None:
    write_cifar(tmp_path, TRAIN[:1])
    assert cifar10(tmp_path).name == "cifar10 train (1 of 5 batches)"
    with pytest.raises(FileNotFoundError, match="no test_batch in"):
        cifar10(tmp_path, "test")


class Malicious:
    """A pickle of this calls os.system."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, ("echo this must never run",)


@pytest.mark.parametrize("where", ["alone", "inside an object array", "as a label"])
def test_malicious_pickles_are_refused(tmp_path: Path, where: str, capfd: pytest.CaptureFixture[str]) -> None:
    evil: Any = {
        "alone": Malicious(),
        "inside an object array": {b"data": np.array([Malicious()], dtype=object), b"labels": [0]},
        "as a label": {**batch(0), b"labels": [Malicious()]},
    }[where]
    (tmp_path / "test_batch").write_bytes(pickle.dumps(evil, protocol=3))
    with pytest.raises(ValueError, match=r"asks for (posix|nt)\.system, which no CIFAR-10 batch does"):
        cifar10(tmp_path, "test")
    assert "must never run" not in capfd.readouterr().out


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "no CIFAR-10 batch, or a damaged one"),
        (pickle.dumps(batch(0))[:-2000], "no CIFAR-10 batch, or a damaged one"),
        (b"<html>", "no CIFAR-10 batch"),
        (pickle.dumps([1, 2]), "b'data' .* got NoneType"),
        (pickle.dumps({**batch(0), b"data": np.zeros((5, 3), np.uint8)}), r"got uint8 of shape \(5, 3\)"),
        (pickle.dumps({**batch(0), b"data": np.zeros((5, 3072))}), "got float64"),
        (pickle.dumps({**batch(0), b"labels": [0] * 4}), "5 numbers from 0 to 9, got a list of 4"),
        (pickle.dumps({**batch(0), b"labels": [0, 1, 2, 3, 10]}), "0 to 9"),
        (pickle.dumps({**batch(0), b"labels": [0, 1, 2, 3, "4"]}), "0 to 9"),
    ],
)
def test_damaged_cifar_batches(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "test_batch").write_bytes(content)
    with pytest.raises(ValueError, match=says):
        cifar10(tmp_path, "test")


# ----------------------------------------------------------------------------------------------- downloads


def test_downloads_are_checked_and_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The network is replaced by files here; pooch's own cache and checksum are at work."""
    import pooch

    write_mnist(tmp_path / "server", suffix=".gz")
    fetched = []

    def fetch(url: str, output: Any, _: Any) -> None:
        fetched.append(url)
        Path(output).write_bytes((tmp_path / "server" / url.rpartition("/")[2]).read_bytes())

    monkeypatch.delenv("MININTK_DATA", raising=False)
    monkeypatch.setattr(pooch, "os_cache", lambda name: tmp_path / "cache" / name)
    monkeypatch.setattr(pooch.core, "choose_downloader", lambda url, progressbar=False: fetch)
    with pytest.raises(ValueError, match="hash of downloaded file"):  # not the published files
        mnist()
    names = ["train-images-idx3-ubyte", "train-labels-idx1-ubyte"]
    hashes = {name: pooch.file_hash(str(tmp_path / "server" / f"{name}.gz")) for name in names}
    monkeypatch.setattr("minintk.datasets.read_mnist.SHA256", hashes)
    assert np.array_equal(mnist().labels, LABELS)
    count = len(fetched)
    assert fetched[-1] == "https://ossci-datasets.s3.amazonaws.com/mnist/train-labels-idx1-ubyte.gz"
    assert np.array_equal(mnist().labels, LABELS)
    assert len(fetched) == count  # the second time from the cache


def test_cifar_download_unpacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tarfile

    import pooch

    batches = write_cifar(tmp_path / "cifar-10-batches-py", [*TRAIN, "test_batch"])
    archive = tmp_path / "cifar-10-python.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(tmp_path / "cifar-10-batches-py", "cifar-10-batches-py")
    monkeypatch.delenv("MININTK_DATA", raising=False)
    monkeypatch.setattr(pooch, "os_cache", lambda name: tmp_path / "cache" / name)
    monkeypatch.setattr(
        pooch.core,
        "choose_downloader",
        lambda url, progressbar=False: lambda url, output, _: Path(output).write_bytes(archive.read_bytes()),
    )
    monkeypatch.setattr("minintk.datasets.read_cifar.SHA256", pooch.file_hash(str(archive)))
    assert cifar10(split="test").labels.tolist() == batches[-1][b"labels"]
    assert len(cifar10()) == 25


def test_no_network_and_no_pooch_are_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pooch

    def refuse(url: str, output: Any, _: Any) -> None:
        raise OSError("no route to host")

    monkeypatch.delenv("MININTK_DATA", raising=False)
    monkeypatch.setattr(pooch, "os_cache", lambda name: tmp_path / name)
    monkeypatch.setattr(pooch.core, "choose_downloader", lambda url, progressbar=False: refuse)
    with pytest.raises(ConnectionError, match=r"no route to host.*MININTK_DATA"):
        mnist()
    real = builtins.__import__
    monkeypatch.setattr(
        builtins, "__import__", lambda name, *rest: real("no_such_module" if name == "pooch" else name, *rest)
    )
    with pytest.raises(ModuleNotFoundError, match=r"minintk\[data\]"):
        cifar10()


# ----------------------------------------------------------------------------------------- the real files


def real(reader: Callable[..., Dataset], split: str) -> Dataset:
    if not os.environ.get("MININTK_DATA"):
        pytest.skip(
            "MININTK_DATA names no folder with MNIST and CIFAR-10, so only files written by the tests were read"
        )
    try:
        return reader(split=split)
    except FileNotFoundError as error:
        pytest.skip(f"this data set is not there: {error}")


def test_real_mnist() -> None:
    import hashlib

    data = real(mnist, "train")
    assert data.raw.shape == (60000, 784)
    # the published file's values, header included
    assert hashlib.md5(idx(data.raw.reshape(-1, 28, 28))).hexdigest() == "6bbc9ace898e44ae57da46a324031adb"
    assert data.labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert real(mnist, "test").raw.shape == (10000, 784)


def test_real_cifar() -> None:
    for split in ("train", "test"):
        data = real(cifar10, split)
        assert data.raw.shape == (len(data), 3072)
        assert np.bincount(data.labels).tolist() == [len(data) // 10] * 10
        neighbours = data.images().raw[:, :, 1:].astype(float), data.images().raw[:, :, :-1].astype(float)
        assert np.corrcoef(neighbours[0].ravel(), neighbours[1].ravel())[0, 1] > 0.9  # pixels lie where they should


def test_enlarged() -> None:
    """Every pixel becomes a square of its value; the frame is zero."""
    data = digits()[:3]
    large = data.enlarged(3, frame=2)
    assert large.image_shape == (28, 28, 1)
    small = data.images().x
    for i in range(24):
        for j in range(24):
            np.testing.assert_array_equal(large.x[:, 2 + i, 2 + j], small[:, i // 3, j // 3])
    assert large.x.sum() == pytest.approx(9 * small.sum(), rel=1e-14)
    np.testing.assert_array_equal(data.enlarged(1).x, small)
    for bad, words in (
        ((0,), "factor=...) expects a whole number >= 1"),
        ((2, -1), "frame=...) expects a whole number"),
    ):
        with pytest.raises(ValueError, match=re.escape(words)):
            data.enlarged(*bad)
