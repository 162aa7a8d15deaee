"""`minintk train`: a network of the zoo on images."""

from __future__ import annotations

from argparse import Namespace

import numpy as np

from minintk import SGD, Cosine, Shift, WarmUp, fit, softmax_cross_entropy
from minintk.arrays import device_namespace, to_library
from minintk.cli.options import DATA, DEVICE, OK, SEED, command, option
from minintk.validate import whole


@command(
    "train",
    "train a network of the zoo on digits, MNIST or CIFAR-10; the same command resumes an interrupted run",
    "Train a network from scratch, by hand-written backprop: SGD with momentum, a cosine schedule "
    "after a short warm-up, cross-entropy. Writes checkpoint, history and curve; after an interruption, the same "
    "command resumes from the last epoch and ends with the same weights.",
    option("network", about="mlp, lenet5, lenet, geiger_cnn, myrtle5, myrtle7, myrtle10 or wrn-DEPTH-WIDEN"),
    DATA,
    option("--width", "N", "width factor of lenet5, channels or features of others", type=int),
    option("--epochs", "N", "number of epochs", 15),
    option("--batch-size", "B", "examples per step", 64),
    option("--lr", "LR", "largest learning rate", 0.05),
    option("--momentum", "M", "", 0.9),
    option("--weight-decay", "W", "", 0.0005),
    option("--shift", "K", "shift images by up to K pixels, redrawn every epoch", 0),
    DEVICE,
    SEED,
    option("--out", "DIR", "output folder (./minintk-NETWORK)"),
)
def _train(args: Namespace) -> int:
    from minintk.experiments import named

    xp = device_namespace(args.device)
    sets = named.data(args.data, flat=args.network == "mlp")
    (x, y), test = ([to_library(a, xp) for a in data.one_hot()] for data in sets)
    net = named.network(args.network, x.shape[1:], y.shape[1], args.width)
    rng = np.random.default_rng(whole("seed", args.seed, 0))
    steps = args.epochs * (len(x) // max(1, args.batch_size))
    warm = max(1, steps // 20)
    lr = WarmUp(warm, then=Cosine(args.lr, max(1, steps - warm)))
    folder = args.out or f"minintk-{args.network}"
    title = f"{args.network} on {sets[0].name}, {net.size:,} parameters"
    print(f"{title}; {len(x):,} images to train on, {len(test[0]):,} to test")
    run = fit(
        net, to_library(net.init(rng, dtype=np.float32), xp), x, y, loss=softmax_cross_entropy,
        optimizer=SGD(lr=lr, momentum=args.momentum, weight_decay=args.weight_decay), epochs=args.epochs,
        batch_size=args.batch_size, rng=rng, augment=Shift(args.shift) if args.shift else None,
        test=(test[0], test[1]), checkpoint=folder, progress=True,
    )  # fmt: skip
    run.history.draw(f"{folder}/curve.png", title)
    last = run.history.last
    print(f"test accuracy {last['test_accuracy']:.2%} after {last['seconds']:.0f} s; {folder}/curve.png, history.json")
    return OK
