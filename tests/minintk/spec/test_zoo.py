"""Test the zoo: compare parameter counts with published numbers and with sums over layers."""

from __future__ import annotations

import re
from math import prod
from typing import Any

import numpy as np
import pytest

import minintk as mn
from minintk import spec as s
from minintk import testing
from minintk.spec import zoo
from minintk.spec.shapes import out_shape


def weights(layer: s.Layer, shape: tuple[int, ...]) -> int:
    """Return the number of weights and biases that a layer has for inputs of this shape."""
    if isinstance(layer, s.Sequential):
        total = 0
        for inner in layer:
            total += weights(inner, shape)
            shape = out_shape(inner, shape)
        return total
    if isinstance(layer, s.Residual):
        return weights(layer.branch, shape) + weights(layer.shortcut, shape)
    if isinstance(layer, s.Dense):
        return (shape[0] + (layer.b_std > 0)) * layer.width
    if isinstance(layer, s.Conv2d):
        size = (layer.kernel_size,) * 2 if isinstance(layer.kernel_size, int) else layer.kernel_size
        return (prod(size) * shape[-1] + (layer.b_std > 0)) * layer.channels
    return 0


def normalised(layer: s.Layer, shape: tuple[int, ...]) -> int:
    """Count the channels of BatchNorm layers. In other libraries, each of them has a scale and an offset."""
    if isinstance(layer, s.Sequential):
        total = 0
        for inner in layer:
            total += normalised(inner, shape)
            shape = out_shape(inner, shape)
        return total
    if isinstance(layer, s.Residual):
        return normalised(layer.branch, shape)
    return shape[-1] if isinstance(layer, s.BatchNorm) else 0


MNIST, CIFAR, IMAGENET = (28, 28, 1), (32, 32, 3), (224, 224, 3)


@pytest.mark.parametrize(
    ("spec", "shape", "count"),
    [
        (zoo.lenet5(), MNIST, 61_706),  # LeNet-5 with fully connected maps
        (zoo.lenet5(padding=0), CIFAR, 62_006),  # the network of PyTorch's tutorial
        (zoo.alexnet(), IMAGENET, 61_100_840),  # torchvision.models.alexnet
        (zoo.alexnet(outputs=10), IMAGENET, 61_100_840 - 990 * 4097),
        (zoo.mlp(2, 512, 10), (784,), 669_706),  # (784 + 1) 512 + (512 + 1) 512 + (512 + 1) 10
        (zoo.geiger_cnn(50), MNIST, 25 * 50 + 3 * 25 * 50**2 + 50),
        (zoo.myrtle(5, 64), CIFAR, 9 * 64 * (3 + 3 * 64) + 640),
        (zoo.myrtle(7, 16), CIFAR, 9 * 16 * (3 + 5 * 16) + 160),
        (zoo.myrtle(10, 16), CIFAR, 9 * 16 * (3 + 8 * 16) + 160),
        (zoo.lenet(), MNIST, 25 * 50 + 50 + 25 * 50 * 50 + 50 + 1250 * 120 + 120 + 120 * 84 + 84 + 850),
        (zoo.wide_resnet(10, channels=64, norm=None), CIFAR, 9 * 3 * 64 + 6 * 9 * 64**2 + 2 * 64**2 + 640),
    ],
    ids=[
        "lenet5",
        "lenet5 on CIFAR",
        "alexnet",
        "alexnet 10",
        "mlp",
        "geiger",
        "m5",
        "m7",
        "m10",
        "lenet",
        "wrn const",
    ],
)
def test_parameter_counts(spec: s.Sequential, shape: tuple[int, ...], count: int) -> None:
    assert weights(spec, shape) == count
    assert mn.Network(spec, shape).size == count
    assert len(out_shape(spec, shape)) == 1


@pytest.mark.parametrize(
    ("depth", "widen", "millions"),
    # Zagoruyko and Komodakis 2016, tables 4 and 5
    [(40, 1, 0.6), (40, 2, 2.2), (40, 4, 8.9), (40, 8, 35.7), (28, 10, 36.5), (28, 12, 52.5), (22, 8, 17.2),
     (16, 8, 11.0), (16, 10, 17.1)],
)  # fmt: skip
def test_wide_resnets_are_as_large_as_published(depth: int, widen: int, millions: float) -> None:
    """Published counts include the scale and offset of each batch-normalised channel. minintk has neither."""
    spec = zoo.wide_resnet(depth, widen)
    count = weights(spec, CIFAR) + 2 * normalised(spec, CIFAR)
    assert round(count / 1e6, 1) == millions
    assert weights(zoo.wide_resnet(depth, widen, norm=None), CIFAR) == weights(spec, CIFAR)


def test_the_widest_number_in_the_docstring() -> None:
    spec = zoo.wide_resnet(28, 10, b_std=1.0)
    assert weights(spec, CIFAR) == weights(zoo.wide_resnet(28, 10), CIFAR) + 10
    assert weights(spec, CIFAR) + 2 * normalised(spec, CIFAR) == 36_479_194
    assert 2 * normalised(spec, CIFAR) == 17_952


def test_the_networks_of_lee_et_al() -> None:
    """Lee et al. use sigma_w^2 = 2 and sigma_b^2 = .1 in Figure 3, and no biases in Figure 4."""
    dense = [layer for layer in zoo.mlp(5, 8, 1).layers if isinstance(layer, mn.Dense)]
    assert [layer.w_std**2 for layer in dense] == pytest.approx([2.0] * 6)
    assert [layer.b_std**2 for layer in dense] == pytest.approx([0.1] * 6)
    net = mn.Network(zoo.wide_resnet(10, channels=4, norm=None, w_std=1.0), CIFAR)
    assert all(t.name.endswith(".W") for t in net.layout.tensors)


def test_width_scales_every_layer() -> None:
    """P(w) = a w^2 + b w + c with the same a, b, c at every width w, so three points predict the fourth."""
    for spec, shape in ((zoo.lenet5, MNIST), (zoo.alexnet, IMAGENET)):
        counts = [weights(spec(w), shape) for w in (1, 2, 3, 4)]
        assert counts[3] == 3 * counts[2] - 3 * counts[1] + counts[0]
        assert 3.5 < counts[1] / counts[0] < 4


def test_lenet_60_is_as_large_as_samarins_largest() -> None:
    """The largest network of Samarin et al. has 216 million parameters: 3600 times the 60,000 of LeNet-5."""
    assert weights(zoo.lenet5(60), MNIST) == pytest.approx(216e6, rel=0.05)


@pytest.mark.parametrize(("width", "shape", "padding"), [(1, MNIST, 2), (1, CIFAR, 0), (3, MNIST, 2)])
def test_lenet5_sees_what_lenet5_sees(width: int, shape: tuple[int, ...], padding: int) -> None:
    seen, spec = [shape], zoo.lenet5(width, padding=padding)
    for layer in spec:
        seen.append(out_shape(layer, seen[-1]))
    flat = [x for x in seen if len(x) == 1]
    assert flat[0] == (400 * width,)
    assert [x[0] for x in flat[1:]] == [120 * width] * 2 + [84 * width] * 2 + [10]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: zoo.wide_resnet(27),
            r"expects 6 N + 4, N >= 1 (10, 16, 22, 28, ...), got 27",
        ),
        (lambda: zoo.wide_resnet(4), r"expects 6 N + 4"),
        (lambda: zoo.wide_resnet(28, 0), r"wide_resnet\(widen=...\) expects a whole number >= 1, got 0"),
        (lambda: zoo.myrtle(6), r"myrtle\(depth=...\) expects 5, 7 or 10, got 6"),
        (lambda: zoo.lenet5(0), r"lenet5\(width=...\) expects a whole number >= 1, got 0"),
        (lambda: zoo.lenet5(1.5), r"lenet5\(width=...\) expects a whole number >= 1, got 1.5"),  # type: ignore[arg-type]
        (lambda: zoo.mlp(0, 5, 1), r"mlp\(depth=...\) expects a whole number >= 1, got 0"),
        (lambda: zoo.geiger_cnn(0), r"Conv2d\(channels=...\) expects a whole number >= 1"),
    ],
)
def test_bad_sizes(make: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words if "\\(" in words else re.escape(words)):
        make()


def test_images_of_the_wrong_size_are_refused() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        out_shape(zoo.alexnet(), (32, 32, 3))
    assert out_shape(zoo.myrtle(5), (32, 32, 3)) == (10,)
    with pytest.raises(ValueError, match="does not fit"):
        out_shape(zoo.myrtle(5), (16, 16, 3))


def test_mlp_is_a_network() -> None:
    net = mn.Network(zoo.mlp(3, 7, 2, activation=mn.Erf(), b_std=0.0), (5,))
    assert net.size == 5 * 7 + 2 * 7 * 7 + 7 * 2


# --------------------------------------------------------------------------- both meanings of the specs


@pytest.mark.parametrize(
    ("spec", "shape"),
    [
        (zoo.lenet5(), MNIST),
        (zoo.lenet(5), MNIST),
        (zoo.geiger_cnn(4), MNIST),
        (zoo.myrtle(7, 4), CIFAR),
        (zoo.wide_resnet(10, channels=4, norm=None), CIFAR),
        (zoo.wide_resnet(10, 1, norm=mn.LayerNorm()), (8, 8, 3)),
    ],
    ids=["lenet5", "lenet", "geiger", "myrtle7", "wrn", "wrn LayerNorm"],
)
def test_networks_of_the_zoo_have_derivatives(spec: s.Sequential, shape: tuple[int, ...]) -> None:
    """<u, J v> = <J' u, v>, and J v is the derivative of f along v."""
    rng = np.random.default_rng(0)
    net = mn.Network(spec, shape)
    theta, x = net.init(rng), rng.standard_normal((2, *shape))
    testing.check_adjoint(net, theta, x, rng)
    testing.check_derivative(net, theta, x, rng)


def test_a_wide_resnet_calibrated_on_a_batch_is_the_same_there() -> None:
    rng = np.random.default_rng(0)
    net = mn.Network(zoo.wide_resnet(10, 1), CIFAR, mn.Standard())
    theta, x = net.init(rng), rng.standard_normal((8, *CIFAR))
    f = net.calibrate(theta, x)(theta, x)
    np.testing.assert_allclose(f, net(theta, x), rtol=1e-10, atol=1e-12)
    assert 0.01 < np.std(f) < 10


@pytest.mark.parametrize(
    ("spec", "shape"),
    [
        (zoo.mlp(3, 1, 1), (6,)),
        (zoo.geiger_cnn(1), (20, 20, 1)),
        (zoo.myrtle(5, 1, 1), CIFAR),
        (zoo.wide_resnet(10, channels=1, norm=None), (8, 8, 3)),
    ],
    ids=["mlp", "geiger", "myrtle5", "wrn"],
)
def test_their_infinite_width_has_kernels(spec: s.Sequential, shape: tuple[int, ...]) -> None:
    """At infinite width, the NNGP kernel is positive definite, and so is the NTK minus the NNGP kernel."""
    import analytic as an

    x = np.random.default_rng(0).standard_normal((3, *shape))
    nngp, ntk = an.kernel(spec).both(x)
    assert float(np.linalg.eigvalsh(nngp)[0]) > 0
    assert float(np.linalg.eigvalsh(ntk - nngp)[0]) > 0


def test_max_pooling_has_none_and_says_so() -> None:
    import analytic as an

    with pytest.raises(mn.UnsupportedLayer, match="MaxPool"):
        an.kernel(zoo.lenet5()).ntk(np.ones((2, *MNIST)))
