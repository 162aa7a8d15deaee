"""Test data sets from synthetic files, downloads and, if present, the published files. Test `Dataset.enlarged`."""

import builtins
import gzip
import os
import pickle
import re
import struct
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event, get_ident
from time import sleep
from typing import Any

import numpy as np
import pytest

from minintk.datasets import Dataset, cifar10, digits, mnist
from minintk.datasets.published import CLASSES, read_idx
from minintk.files.locks import Claim

Array = np.ndarray[Any, Any]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


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
        (idx(IMAGES)[:9], "unpack requires a buffer of 12 bytes"),
        (idx(IMAGES)[:-1], r"promises uint8 of shape \(6, 3, 4\), 72 bytes, and it holds 71\): download it again"),
        (idx(IMAGES) + b"!", "more bytes than its header promises"),
        (idx(IMAGES, kind=13), "bytes, beginning 00 00 08"),
        (gzip.compress(idx(IMAGES), mtime=0)[:-9], "is damaged, or not an IDX file .EOFError"),
        (gzip.compress(idx(IMAGES), mtime=0)[:-8] + b"\0" * 8, "is damaged, or not an IDX file .BadGzipFile: CRC"),
        (b"\x1f\x8bnonsense", "is damaged, or not an IDX file .BadGzipFile"),
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


def dumped(value: Any) -> bytes:
    """Return a pickle of protocol 4, the newest protocol that the tests of this file write."""
    return pickle.dumps(value, protocol=4)


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
    """The reader accepts the published format: protocol 2, Python 2's str, and arrays from numpy.core.multiarray."""
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
    """An object whose pickle calls os.system when it is loaded."""

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
    with pytest.raises(ValueError, match=r"got [015] numbers up to \d, and (0|15360) bytes"):
        cifar10(tmp_path, "test")
    assert "must never run" not in capfd.readouterr().out


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is damaged, or not a CIFAR-10 batch .*: download it again"),
        (dumped(batch(0))[:-2000], "is damaged, or not a CIFAR-10 batch"),
        (b"<html>", "is damaged, or not a CIFAR-10 batch"),
        (dumped([1, 2]), "b'data' .* got 0 numbers up to 0, and 0 bytes"),
        (dumped({**batch(0), b"data": np.zeros((5, 3), np.uint8)}), "got 5 numbers up to 8, and 15 bytes"),
        (dumped({**batch(0), b"data": np.zeros((5, 3072))}), "got 5 numbers up to 8, and 0 bytes"),
        (dumped({**batch(0), b"data": np.asfortranarray(batch(0)[b"data"])}), "and 0 bytes"),
        (dumped({**batch(0), b"labels": [0] * 4}), "got 4 numbers up to 0, and 15360 bytes"),
        (dumped({**batch(0), b"labels": [0, 1, 2, 3, 10]}), "5 numbers up to 10"),
        (dumped({**batch(0), b"labels": [0, 1, 2, 3, "4"]}), "got 4 numbers"),
    ],
)
def test_damaged_cifar_batches(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "test_batch").write_bytes(content)
    with pytest.raises(ValueError, match=says):
        cifar10(tmp_path, "test")


NDARRAY, NUMBER = b"cnumpy\nndarray\n", b"\x8b" + struct.pack("<i", 100) + b"\xff" * 99 + b"\x7f"  # 2^799 - 1
HUGE = (
    b"\x80\x02}(U\x04datacnumpy.core.multiarray\n_reconstruct\n" + NDARRAY + b"K\x00\x85U\x01b\x87R(K\x01"
    b"(" + NUMBER + b"q\x00" + b"h\x00" * 20_000 + b"t" + b"cnumpy\ndtype\nU\x02u1\x85R\x89U\x00tb"
    b"U\x06labels]u."
)  # fmt: skip


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\x80\x02(" + b"}" * 10**6 + b"t.", "and 0 bytes"),
        (b"\x80\x02(" + NDARRAY + b"q\x00(" + b"N" * 10**4 + b"tq\x01" + b"h\x00h\x01R" * 10**3 + b"t.", "and 0 bytes"),
        (HUGE, "and 0 bytes"),
    ],
    ids=["a dictionary a byte", "one tuple, called a thousand times", "a shape of twenty thousand large numbers"],
)
def test_small_pickles_take_neither_memory_nor_time(tmp_path: Path, content: bytes, says: str) -> None:
    """Pickles that need 70 or 80 times their size in memory, or a minute to multiply a shape's entries, are refused."""
    (tmp_path / "test_batch").write_bytes(content)
    with pytest.raises(ValueError, match=says):
        cifar10(tmp_path, "test")


# ----------------------------------------------------------------------------------------------- downloads


def test_downloads_are_checked_and_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Local files replace downloads here, but pooch's own cache and checksum are used."""
    pooch = pytest.importorskip("pooch")

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
    monkeypatch.setattr("minintk.datasets.published.MNIST_SHA256", hashes)
    assert np.array_equal(mnist().labels, LABELS)
    count = len(fetched)
    assert fetched[-1] == "https://ossci-datasets.s3.amazonaws.com/mnist/train-labels-idx1-ubyte.gz"
    assert np.array_equal(mnist().labels, LABELS)
    assert len(fetched) == count  # the second call reads the cache


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[bytes, Any]]:
    """Return synthetic CIFAR-10 batches. Instead of downloading, pooch copies their archive into an empty cache."""
    import tarfile

    pooch = pytest.importorskip("pooch")

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
    monkeypatch.setattr("minintk.datasets.published.CIFAR_SHA256", pooch.file_hash(str(archive)))
    return batches


def test_cifar_download_unpacks(served: list[dict[bytes, Any]]) -> None:
    assert cifar10(split="test").labels.tolist() == served[-1][b"labels"]
    assert len(cifar10()) == 25


def test_who_comes_while_another_unpacks_waits(
    served: list[dict[bytes, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second caller waits while the last file is half written and all others are complete.

    Otherwise this caller would read the incomplete file.
    """
    processor, waits, others = pytest.importorskip("pooch").Untar, Event(), list[Future[Dataset]]()
    unpack, me = processor._extract_file, get_ident()

    def slowly(self: Any, archive: str, folder: str) -> None:
        unpack(self, archive, folder)
        os.truncate(Path(folder, "cifar-10-batches-py", "test_batch"), 100)
        others.append(pool.submit(cifar10, split="test"))
        while not (waits.is_set() or others[0].done()):
            sleep(0.001)
        unpack(self, archive, folder)

    def claimed(*arguments: Any, **named: Any) -> Claim:
        if get_ident() != me:
            waits.set()
        return Claim(*arguments, **named)

    monkeypatch.setattr(processor, "_extract_file", slowly)
    monkeypatch.setattr("minintk.datasets.published.Claim", claimed, raising=False)
    with ThreadPoolExecutor(1) as pool:
        first = cifar10(split="test")
    assert others[0].result().labels.tolist() == first.labels.tolist() == served[-1][b"labels"]


def test_a_cache_that_cannot_be_written_is_read(
    served: list[dict[bytes, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    cifar10()

    def refused(*_: Any, **__: Any) -> None:
        raise PermissionError("read-only")

    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr("minintk.datasets.published.Claim", refused)
    assert len(cifar10()) == 25


def test_no_network_and_no_pooch_are_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pooch = pytest.importorskip("pooch")

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
    # the MD5 sum of the published file, header included
    assert hashlib.md5(idx(data.raw.reshape(-1, 28, 28))).hexdigest() == "6bbc9ace898e44ae57da46a324031adb"
    assert data.labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert real(mnist, "test").raw.shape == (10000, 784)


def test_real_cifar() -> None:
    for split in ("train", "test"):
        data = real(cifar10, split)
        assert data.raw.shape == (len(data), 3072)
        assert np.bincount(data.labels).tolist() == [len(data) // 10] * 10
        neighbours = data.images().raw[:, :, 1:].astype(float), data.images().raw[:, :, :-1].astype(float)
        assert np.corrcoef(neighbours[0].ravel(), neighbours[1].ravel())[0, 1] > 0.9  # neighbouring pixels are alike


def test_enlarged() -> None:
    """Every pixel becomes a square of equal values, and the frame around the image is zero."""
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
