"""Compare the signals of each layer with known values."""

import numpy as np

import minintk as mn
from minintk.examination.signals import apart, drawn, rms, signals, uneven


def test_sizes_gains_and_dead_features() -> None:
    net = mn.Network(mn.Sequential(mn.Dense(4, b_std=1.0), mn.ReLU(), mn.Dense(2)), (3,), mn.Standard())
    w = {"0.W": np.ones((3, 4)), "0.b": np.array([0.0, 0.0, 0.0, -9.0]), "2.W": np.ones((4, 2))}
    x = np.array([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]])
    found, work = signals(net, net.layout.pack(w), x)
    assert found["0"].dead is None
    assert found["2"].dead == 0.25  # 1 + 1 - 9 < 0
    assert np.isclose(found["2"].size, rms(np.array([3.0, 6.0])))
    assert np.isclose(found["2"].gain, found["2"].size / rms(np.array([1.0, 1.0, 1.0, 0.0, 2.0, 2.0, 2.0, 0.0])))
    assert work == 3 * 4 + 4 * 2


def test_features_that_vary_little_are_not_dead() -> None:
    net = mn.Network(mn.Sequential(mn.Dense(2), mn.Dense(1)), (2,), mn.Standard())
    x = np.array([[1.0, 1.0], [1.0, 1.01]])
    assert signals(net, np.ones(6), x)[0]["1"].dead == 0


def test_features_of_images_are_dead_if_all_their_pixels_are_the_same() -> None:
    net = mn.Network(mn.Sequential(mn.Conv2d(4), mn.ReLU(), mn.Conv2d(2), mn.GlobalAvgPool()), (4, 4, 1))
    rng = np.random.default_rng(0)
    theta, x = net.init(rng), rng.standard_normal((5, 4, 4, 1))
    net.layout.unpack(theta)["0.W"][...] = np.abs(net.layout.unpack(theta)["0.W"]) * np.array([1, 1, 1, 0])
    found, work = signals(net, theta, x)
    assert found["2"].dead == 0.25
    assert work == 16 * 9 * 4 + 16 * 9 * 4 * 2


def test_draws_are_known_in_every_parametrization_and_other_weights_are_not() -> None:
    spec = mn.Sequential(mn.Dense(30, b_std=0.5), mn.ReLU(), mn.Dense(3, b_std=1.0, b_init="zeros"))
    for how in (mn.NTK(), mn.Standard(), mn.PyTorch(), mn.SpectralMuP(), mn.MeanField()):
        net = mn.Network(spec, (20,), how)
        thetas = net.init(np.random.default_rng(0), ensemble=200)
        assert all(drawn(net, theta) for theta in thetas)
        moved = thetas[0].copy()
        moved[net.layout.slices["2.W"]] *= 2
        assert not drawn(net, moved)
        moved = thetas[0].copy()
        moved[net.layout.slices["2.b"]] += 0.1
        assert not drawn(net, moved)


def test_how_far_outputs_are_apart_and_columns_uneven() -> None:
    f = np.array([[3.0, 1.0], [3.0, -1.0]])
    assert np.isclose(apart(f), np.sqrt(2 / 20))
    assert apart(np.zeros((3, 1))) == 0
    x = np.random.default_rng(0).standard_normal((50, 5))
    assert uneven(x) < 2
    assert uneven(x * np.array([1, 1, 1, 1, 1e4])) > 1e3
    assert uneven(x.reshape(50, 5, 1, 1)) == 1
    assert uneven(np.ones((4, 2))) == 1
