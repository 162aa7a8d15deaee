"""Test that results are bitwise independent of the number of threads, of the caller and of concurrent work."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import analytic as an
import minintk as mn
from minintk import threads, thresholds
from minintk.doors import through
from minintk.threads import alone, parallel
from minintk.training import train as training
from tests.kit.guests import Host, digest, hosts

COUNTS = (1, 2, 4, 16)


@pytest.fixture
def every_host() -> Iterator[dict[str, Host]]:
    """Yield functions that train, fit and compute kernels, with thresholds so low that all work is divided."""
    with hosts() as (all_hosts, _):
        yield all_hosts


@contextmanager
def on(count: int, pieces: int | None = None) -> Iterator[None]:
    """Use `count` threads on any number of cores, and at most `pieces` pieces."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (threads, training):
            patch.setattr(module, "cores", lambda: count)
        if pieces is not None:
            patch.setattr(thresholds, "PIECES", pieces)
        yield


@pytest.mark.parametrize("pieces", [2, 16])
def test_bits_do_not_depend_on_the_number_of_threads(pieces: int, every_host: dict[str, Host]) -> None:
    found = []
    for count in COUNTS:
        with on(count, pieces):
            found.append({name: host() for name, host in every_host.items()})
    assert all(bits == found[0] for bits in found)


@pytest.mark.skipif(through("networks") is None, reason="only the fast ways cut a step into pieces")
def test_pieces_that_follow_the_cores_are_refused(every_host: dict[str, Host]) -> None:
    """Negative control: with one piece per thread, each summed separately, the bits depend on the number of threads."""
    found = []
    for count in (2, 4):
        with on(count, pieces=count):
            found.append(every_host["step"]())
    assert found[0] != found[1]


def in_asyncio(host: Host) -> str:
    return asyncio.run(asyncio.to_thread(host))


def in_the_pool(host: Host) -> str:
    first, second = parallel(lambda call: call(), [host, host])
    assert first == second
    return first


def beside_three(host: Host) -> str:
    """Return the digest of `host` while three other threads also run `host`."""
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            host()

    others = [threading.Thread(target=busy) for _ in range(3)]
    for other in others:
        other.start()
    try:
        found = {host() for _ in range(3)}
    finally:
        stop.set()
        for other in others:
            other.join()
    assert len(found) == 1
    return found.pop()


@pytest.mark.parametrize("how", [alone, in_asyncio, in_the_pool, beside_three])
@pytest.mark.parametrize(
    "name", ["step", "train a coupled batch", "fit", "empirical kernel", "kernel of points", "kernel of images"]
)
def test_bits_do_not_depend_on_who_asks(name: str, how: Callable[[Host], str], every_host: dict[str, Host]) -> None:
    host = every_host[name]
    with threadpool_limits(2, user_api="blas"):
        assert how(host) == host()


def work_of_a_process(seed: int) -> str:
    """Return a digest of two steps, a kernel and a solve at default thresholds. It runs in a separate process."""
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((128, 28, 28, 1)).astype(np.float32), np.eye(10, dtype=np.float32)[np.arange(128) % 10]
    net = mn.Network(mn.zoo.lenet5(), (28, 28, 1))
    theta = net.init(rng, dtype=np.float32)
    *_, last = mn.train(net, theta, x, y, loss=mn.softmax_cross_entropy, optimizer=mn.SGD(0.01), steps=2)
    k = an.kernel(mn.zoo.mlp(2, 64, 1)).ntk(x[:, 8:16, 8:16, 0].reshape((128, -1)).astype(np.float64))
    flow = an.gradient_flow(k, y[:, :1].astype(np.float64))
    return digest(last.theta, k, flow.predict(3.0))


def test_bits_in_processes_of_joblib() -> None:
    joblib = pytest.importorskip("joblib")
    with threadpool_limits(1, user_api="blas"):
        here = [work_of_a_process(seed) for seed in range(2)]
    there = joblib.Parallel(n_jobs=2)(joblib.delayed(work_of_a_process)(seed) for seed in range(2))
    assert here == there


@pytest.mark.slow
@pytest.mark.parametrize("blas", [1, 2])
def test_bits_at_sizes_of_users(blas: int) -> None:
    """After two steps on 256 images, LeNet-5 and a residual network are bitwise the same for each number of threads.

    So are a kernel and a solve with 3,500 points.
    """
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((256, 28, 28, 1)).astype(np.float32), np.eye(10, dtype=np.float32)[np.arange(256) % 10]
    colour = rng.standard_normal((256, 32, 32, 3)).astype(np.float32)
    points, targets = rng.standard_normal((3500, 60)), rng.standard_normal((3500, 1))
    found = []
    for count in COUNTS:
        with on(count), threadpool_limits(blas, user_api="blas"):
            parts = []
            for spec, images in ((mn.zoo.lenet5(), x), (mn.zoo.wide_resnet(10, 1), colour)):
                net = mn.Network(spec, images.shape[1:])
                run = mn.train(net, net.init(np.random.default_rng(1), dtype=np.float32), images, y, steps=2, every=2,
                               loss=mn.softmax_cross_entropy, optimizer=mn.SGD(0.01, momentum=0.9))  # fmt: skip
                *_, last = run
                parts.append(last.theta)
            kernel = an.kernel(mn.zoo.mlp(2, 64, 1))
            parts.append(an.posterior(kernel, points, targets, ridge=0.1).predict(points[:100]))
            found.append(digest(*parts, kernel.ntk(points)))
    assert len(set(found)) == 1


def test_joined_ensembles_do_not_depend_on_it_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members distributed over the cores are bitwise the same for each number of threads."""
    net = mn.Network(mn.Sequential(mn.Dense(300), mn.ReLU(), mn.Dense(2)), (400,))
    theta, x = net.init(np.random.default_rng(0), ensemble=6), np.random.default_rng(1).standard_normal((40, 400))
    monkeypatch.setattr(thresholds.THRESHOLDS, "ensemble_bytes", 2**20)
    found: list[Any] = []
    for count in COUNTS:
        with on(count):
            *_, last = mn.train(net, theta, x, x[:, :2], loss=mn.mse, optimizer=mn.SGD(0.1), steps=3, every=3)
        found.append(digest(last.theta))
    assert len(set(found)) == 1


@pytest.mark.parametrize("phi", [mn.Tanh(), mn.Sigmoid(), mn.Softplus(), mn.ReLU()], ids=repr)
@pytest.mark.parametrize("N", [20, 120])
def test_bits_of_a_small_kernel_do_not_depend_on_blas(phi: mn.spec.Layer, N: int) -> None:
    x = np.random.default_rng(0).standard_normal((N, 3))
    k = an.kernel(mn.Sequential(mn.Dense(9, b_std=0.1), phi, mn.Dense(9), phi, mn.Dense(1)))
    found = []
    for count in (1, 2):
        with threadpool_limits(count, user_api="blas"):
            found.append([np.asarray(a).tobytes() for a in k.both(x)])
    assert found[0] == found[1]
