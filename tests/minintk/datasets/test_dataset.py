"""Test the embedded digits and the methods of `Dataset`. `test_published` tests files and `Dataset.enlarged`."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minintk.datasets import Dataset, cube, digits, sphere

Array = np.ndarray[Any, Any]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def small(N: int = 12, shape: tuple[int, int, int] = (4, 5, 2), *, raw: bool = False) -> Dataset:
    """Return random images in three classes, as bytes if `raw`."""
    images = rng(1).integers(0, 256, (N, *shape), dtype=np.uint8)
    return Dataset(images if raw else images / 255, np.arange(N) % 3, classes=("a", "b", "c"))


# ---------------------------------------------------------------------------------------------- digits


def test_digits_are_the_published_ones() -> None:
    theirs, ours = pytest.importorskip("sklearn.datasets").load_digits(), digits()
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
    _, of_a_pair = data.pair(8, 3).parity()  # uses the classes' names, not their indices
    assert np.array_equal(of_a_pair[:, 0] == 1, data.labels[(data.labels == 3) | (data.labels == 8)] == 8)


# ------------------------------------------------------------------------------------------ invalid input


@pytest.mark.parametrize(
    ("raw", "labels", "options", "error", "says"),
    [
        (np.ones((2, 3)), np.zeros(3, int), {}, ValueError, r"shape \(2,\)"),
        (np.ones((2, 3)), np.zeros(2), {}, ValueError, "labels expect whole numbers"),
        (np.ones((2, 3)), np.array([0, 5]), {"classes": ("a", "b")}, ValueError, "0 to 1, got 0 to 5"),
        (np.ones((2, 3)), np.array([0, -1]), {}, ValueError, "got -1"),
        (np.ones((2, 3)), np.array([0, 2**63], np.uint64), {}, ValueError, "0 to 999999, got 0 to 9223372036854775808"),
        (np.array([[1.0], [np.nan]]), np.zeros(2, int), {}, ValueError, "NaN or infinite"),
        (np.ones((2, 3), int), np.zeros(2, int), {}, TypeError, "float32 or float64"),
        (np.ones(2), np.zeros(2, int), {}, ValueError, r"\(N, d\)"),
        (np.ones(2, np.uint8), np.zeros(2, int), {}, ValueError, r"\(N, d\)"),
        (np.ones((2, 3), np.uint8), np.zeros(2, int), {"dtype": int}, TypeError, "float32 or float64"),
        (np.ones((2, 3)), np.zeros(2, int), {"image_shape": (2, 2, 1)}, ValueError, "do not fit"),
        ([[1.0]], np.zeros(1, int), {}, TypeError, "NumPy arrays, without masks, got list"),
        (np.ma.ones((1, 2)), np.zeros(1, int), {}, TypeError, "without masks, got MaskedArray"),
        (np.ma.ones((1, 2), np.uint8), np.zeros(1, int), {}, TypeError, "without masks, got MaskedArray"),
        (np.ones((1, 2)), np.ma.zeros(1, int), {}, TypeError, "without masks, got ndarray and MaskedArray"),
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
        (lambda d: d.pca(0), ValueError, "k expects a whole number from 1 to 40, got 0"),
        (lambda d: d.pca(41), ValueError, "from 1 to 40, got 41"),
        (lambda d: d.pca(12), ValueError, "11 directions only"),  # 12 examples, centred
        (lambda d: d.pca(2, fit=digits()), ValueError, r"got \(64,\)"),
        (lambda d: d.pca(2, fit="train"), TypeError, "expects a Dataset"),
        (lambda d: d.pca(2).images(), ValueError, "no images"),
        (lambda d: d.pca(2).shifted(1, rng()), ValueError, "no images"),
        (lambda d: d.shifted(4, rng()), ValueError, "from 0 to 3, got 4"),
        (lambda d: d.shifted(1, 0), TypeError, "numpy.random.Generator, .*, got 0"),
        (lambda d: d.subset(13, rng()), ValueError, "has 12"),
        (lambda d: d.subset(-1, rng()), ValueError, ">= 0"),
        (lambda d: d.subset(2.5, rng()), ValueError, "2.5"),
        (lambda d: d.split(10, 3, rng()), ValueError, r"10 \+ 3"),
        (lambda d: d.subset(3, np.random), TypeError, "default_rng"),
        (lambda d: d[3], TypeError, "slice or an array"),
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
    assert np.allclose(np.abs(z), np.abs(centred @ Vt[:k].T) / (s[:k] / np.sqrt(N)), atol=1e-10)


def test_pca_of_float32_data_finds_as_many_directions() -> None:
    """The products are computed in float64, so directions with 1e-4 of the largest variance also count in float32."""
    x = rng(7).standard_normal((6000, 40)) * np.logspace(0, -2, 40)
    few = x[:, :5] @ rng(8).standard_normal((5, 40))
    assert Dataset(x.astype(np.float32), np.zeros(6000, int)).pca(40).x.shape == (6000, 40)
    with pytest.raises(ValueError, match="5 directions only"):
        Dataset(few.astype(np.float32), np.zeros(6000, int)).pca(6)


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
    for dtype, scale in ((np.float64, 1e200), (np.float64, 1e-200), (np.float32, 1e25), (np.float32, 1e-30)):
        x = Dataset((scale * np.array([[3.0, 4.0], [0.0, -2.0]])).astype(dtype), np.zeros(2, int)).on_sphere().x
        np.testing.assert_allclose(x, np.sqrt(2) * np.array([[0.6, 0.8], [0.0, -1.0]]), rtol=1e-6)
    x = Dataset(np.array([[3e200, 4e200], [0.0, -2e-200]]), np.zeros(2, int)).on_sphere().x
    np.testing.assert_allclose(x, np.sqrt(2) * np.array([[0.6, 0.8], [0.0, -1.0]]), rtol=1e-15)


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
    """Move each pixel (i, j) to (i + dy, j + dx) if this position is inside the image, and fill the rest with zeros."""
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
    # E x_i^4 = 3d/(d+2) for uniform directions; the standard error is estimated
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


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: sphere(0, 3, rng()), "n expects a whole number >= 1, got 0"),
        (lambda: cube(3, 1.5, rng()), "d expects a whole number >= 1, got 1.5"),  # type: ignore[arg-type]
    ],
)
def test_generators_refuse(call: Callable[[], Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        call()
