"""Define the networks of published papers as specs (the zoo).

The caller chooses the parametrization, as in ``mn.Network(zoo.lenet5(), (28, 28, 1), mn.PyTorch())``.  Images are
channels-last.  The docstrings state the number of parameters P and the source of each network.

>>> import minintk as mn
>>> mn.Network(mlp(2, 512, 10), (784,)).size
669706
"""

from __future__ import annotations

from collections.abc import Sequence

from minintk.spec.activations import ReLU
from minintk.spec.layers import (
    Activation,
    AvgPool,
    BatchNorm,
    Conv2d,
    Dense,
    Flatten,
    GlobalAvgPool,
    Layer,
    MaxPool,
    Residual,
    Sequential,
)
from minintk.validate import whole

SQRT2 = 2**0.5
"""The w_std of He et al. 2015, which preserves the variance through ReLU layers."""

RELU, BATCH_NORM = ReLU(), BatchNorm()
"""The default activation of `mlp` and the default normalisation of `wide_resnet`."""


def mlp(
    depth: int, width: int, outputs: int, *, activation: Activation = RELU, w_std: float = SQRT2,
    b_std: float = 0.1**0.5,
) -> Sequential:  # fmt: skip
    """Return an MLP with `depth` hidden layers of n = `width` features.  The defaults follow Lee et al. 2019.

    P = (d + 1) n + (depth - 1) (n + 1) n + (n + 1) C for d inputs and b_std > 0.  Raises ValueError if depth or n < 1.

    >>> import minintk as mn
    >>> mn.Network(mlp(2, 50, 10), (64,)).size
    6310
    """
    whole("mlp(depth=...)", depth)
    hidden = [layer for _ in range(depth) for layer in (Dense(width, w_std=w_std, b_std=b_std), activation)]
    return Sequential(*hidden, Dense(outputs, w_std=w_std, b_std=b_std))


def lenet5(width: int = 1, outputs: int = 10, *, padding: int = 2) -> Sequential:
    """Return LeNet-5 with ReLU and max-pooling, 5 x 5 convolutions (6w, 16w channels) and Dense (120w, 84w, C outputs).

    Inputs are 28 x 28 x 1 images (padding 2, MNIST) or 32 x 32 x 3 images (padding 0, CIFAR-10).  The usual
    parametrization is `mn.PyTorch()`.  At w = `width` = 1, P = 61,706 for MNIST (all channels connected) and 62,006 for
    CIFAR-10, as in PyTorch's tutorial.  Samarin et al. 2022 state "about 60k" and multiply all widths by w.

    >>> import minintk as mn
    >>> mn.Network(lenet5(), (28, 28, 1)).size
    61706
    """
    whole("lenet5(width=...)", width)
    return _lenet((6 * width, 16 * width), (120 * width, 84 * width, outputs), padding)


def lenet(channels: int = 50, outputs: int = 10, *, padding: int = 2) -> Sequential:
    """Return LeNet-5 with `channels` channels in each convolution, then 120, 84 and `outputs` features.

    This is the "slightly larger variant of LeNet" of the paper on iterative linearisation (2022), which states only the
    50 channels.  The rest follows `lenet5`.  Inputs are images of 28 x 28 x 1 (P = 224,984) or 32 x 32 x 3 pixels.

    >>> import minintk as mn
    >>> mn.Network(lenet(50), (28, 28, 1)).size
    224984
    """
    return _lenet((channels, channels), (120, 84, outputs), padding)


def _lenet(channels: Sequence[int], features: Sequence[int], padding: int) -> Sequential:
    """Return a network of two convolutions, each followed by ReLU and pooling, and fully connected layers."""
    first = Conv2d(channels[0], 5, padding=padding, b_std=1.0)
    layers: list[Layer] = [first, ReLU(), MaxPool(2), Conv2d(channels[1], 5, padding="valid", b_std=1.0), ReLU()]
    layers += [MaxPool(2), Flatten()]
    for i, width in enumerate(features):
        layers += [ReLU()] * (i > 0) + [Dense(width, b_std=1.0)]
    return Sequential(*layers)


def alexnet(width: int = 1, outputs: int = 1000) -> Sequential:
    """Return the single-column AlexNet of Krizhevsky 2014 as in torchvision, without dropout, for 224 x 224 x 3 images.

    `width` multiplies hidden channel and feature counts.  Samarin et al. 2022 use 10 outputs and widths 1 to 4.
    The usual parametrization is `mn.PyTorch()`.  P = 61,100,840 for width 1 and 1000 outputs, as torchvision documents.

    >>> import minintk as mn
    >>> mn.Network(alexnet(), (224, 224, 3)).size
    61100840
    """
    whole("alexnet(width=...)", width)
    pool = MaxPool(3, stride=2)

    def conv(channels: int, size: int, padding: int, stride: int = 1) -> tuple[Layer, Layer]:
        return Conv2d(channels * width, size, stride=stride, padding=padding, b_std=1.0), ReLU()

    features = (
        *(*conv(64, 11, 2, stride=4), pool, *conv(192, 5, 2), pool),
        *(*conv(384, 3, 1), *conv(256, 3, 1), *conv(256, 3, 1), pool),
    )
    dense = [layer for _ in range(2) for layer in (Dense(4096 * width, b_std=1.0), ReLU())]
    return Sequential(*features, Flatten(), *dense, Dense(outputs, b_std=1.0))


def geiger_cnn(channels: int, outputs: int = 1) -> Sequential:
    """Return a network of four 5 x 5 convolutions (ReLU, padding 1, strides 2, 1, 2, 1), GlobalAvgPool and Dense.

    Geiger et al. 2020, appendix B, use this network for 28 x 28 images in the NTK parametrization.  Kernel size,
    padding and the lack of biases follow the authors' public code, but w_std = sqrt(2) replaces the code's scaling of
    ReLU.  P = 25 C_in h + 3 * 25 h^2 + h C for h = `channels` and C outputs.

    >>> import minintk as mn
    >>> mn.Network(geiger_cnn(16), (28, 28, 1)).size
    19616
    """
    strides = (2, 1, 2, 1)
    body = [
        layer
        for i, stride in enumerate(strides)
        for layer in (Conv2d(channels, 5, stride=stride, padding=1, w_std=SQRT2 if i else 1.0), ReLU())
    ]
    return Sequential(*body, GlobalAvgPool(), Dense(outputs, w_std=SQRT2))


def wide_resnet(
    depth: int = 28, widen: int = 10, outputs: int = 10, *, norm: Layer | None = BATCH_NORM,
    channels: int | None = None, w_std: float = SQRT2, b_std: float = 0.0,
) -> Sequential:  # fmt: skip
    """Return WRN-depth-k, depth = 6 N + 4 and k = `widen`, for 32 x 32 x 3 images (Zagoruyko and Komodakis 2016).

    The layers are a convolution with 16 channels, three groups of N residual blocks (16k, 32k, 64k channels), global
    average pooling and Dense.  Groups 2 and 3 begin with stride 2.  A block applies norm, ReLU and convolution twice,
    without biases.  If a block changes the shape, its shortcut is a 1 x 1 convolution after its first ReLU.

    norm : the layer that precedes each ReLU: `BatchNorm()`, `LayerNorm()`, or None for no normalisation.
    channels : the number of channels of all layers, instead of 16, 16k, 32k, 64k (Lee et al. 2019, figure 4: depth 10,
        1024 channels, w_std = 1, norm=None).  b_std : the scale of the dense layer's bias, or 0 for no bias.
    In the paper, WRN-28-10 has 36.5 million (36,479,194) parameters.  This network omits 17,962 of them: the scales and
    offsets of batch normalisation, and 10 biases.  Raises ValueError unless depth = 6 N + 4 with N >= 1.

    >>> import minintk as mn
    >>> mn.Network(wide_resnet(10, 1), (32, 32, 3)).size
    77360
    """
    whole("wide_resnet(widen=...)", widen)
    if isinstance(depth, bool) or not hasattr(depth, "__index__") or depth < 10 or depth % 6 != 4:
        raise ValueError(f"wide_resnet(depth=...) expects 6 N + 4, N >= 1 (10, 16, 22, 28, ...), got {depth!r}")
    stem, groups = channels or 16, [channels or 16 * 2**i * widen for i in range(3)]
    active = [*([] if norm is None else [norm]), ReLU()]

    def conv(channels: int, size: int = 3, stride: int = 1) -> Layer:
        return Conv2d(channels, size, stride=stride, w_std=w_std)

    layers: list[Layer] = [conv(stem)]
    before = stem
    for group, n in enumerate(groups):
        for block in range((depth - 4) // 6):
            stride = 2 if group and not block else 1
            branch = (conv(n, stride=stride), *active, conv(n))
            if stride == 1 and n == before:
                layers.append(Residual(Sequential(*active, *branch)))
            else:
                layers += [*active, Residual(Sequential(*branch), shortcut=conv(n, 1, stride))]
            before = n
    return Sequential(*layers, *active, GlobalAvgPool(), Dense(outputs, b_std=b_std))


def myrtle(depth: int = 5, channels: int = 64, outputs: int = 10) -> Sequential:
    """Return Myrtle5, Myrtle7 or Myrtle10 (Shankar et al. 2020) for 32 x 32 x 3 images.

    The network has 3 x 3 convolutions with ReLU in three groups of [2, 1, 1], [2, 2, 2] or [3, 3, 3], each followed by
    average pooling by 2.  Two more pooling layers leave one pixel for Dense.  w_std is sqrt(2).  Biases are omitted.
    P = 9 n (3 + (depth - 2) n) + n C for n = `channels` and C outputs.  Raises ValueError for other depths.

    >>> import minintk as mn
    >>> mn.Network(myrtle(5, 64), (32, 32, 3)).size
    112960
    """
    if depth not in (5, 7, 10):
        raise ValueError(f"myrtle(depth=...) expects 5, 7 or 10, got {depth!r}")
    counts = {5: (2, 1, 1), 7: (2, 2, 2), 10: (3, 3, 3)}[depth]
    layers = [layer for count in counts for layer in (*[Conv2d(channels, 3, w_std=SQRT2), ReLU()] * count, AvgPool(2))]
    return Sequential(*layers, AvgPool(2), AvgPool(2), Flatten(), Dense(outputs, w_std=SQRT2))
