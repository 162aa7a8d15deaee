"""Time four of the training rows of `gpu.py` in PyTorch, with PyTorch's usual training loop in float32.

python benchmarks/gpu_torch.py        in an environment with PyTorch; prints milliseconds per step
"""

from __future__ import annotations

import time
from statistics import median

import torch
from torch import nn


def step_time(net: nn.Module, x: torch.Tensor, classes: int = 10, count: int = 50) -> float:
    """Return the seconds per SGD step with momentum, as the median of five runs after a warm-up."""
    net, x = net.cuda(), x.cuda()
    y = torch.randint(0, classes, (len(x),)).cuda()
    optimizer, loss = torch.optim.SGD(net.parameters(), 1e-3, momentum=0.9), nn.CrossEntropyLoss()

    def run(steps: int) -> float:
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(steps):
            optimizer.zero_grad()
            loss(net(x), y).backward()
            optimizer.step()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / steps

    run(10)
    return median(run(count) for _ in range(5))


def perceptron() -> nn.Sequential:
    """Return the network 784-2048-2048-10 with ReLU."""
    return nn.Sequential(
        nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10)
    )  # fmt: skip


def convolutions() -> nn.Sequential:
    """Return a network of three convolutions with 64 channels, a mean over pixels and a dense layer."""
    hidden = [layer for i in range(3) for layer in (nn.Conv2d(64 if i else 3, 64, 3, padding=1), nn.ReLU())]
    return nn.Sequential(*hidden, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def lenet() -> nn.Sequential:
    """Return LeNet-5."""
    features = nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU()
    dense = nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)
    return nn.Sequential(*features, nn.MaxPool2d(2), nn.Flatten(), *dense)


if __name__ == "__main__":
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name()}")
    print(f"784-2048-2048-10, batch 256: {1e3 * step_time(perceptron(), torch.randn(256, 784)):.2f} ms")
    print(f"3 convolutions, 28 x 28, batch 128: {1e3 * step_time(convolutions(), torch.randn(128, 3, 28, 28)):.2f} ms")
    for batch in (32, 256):
        print(f"LeNet-5, batch {batch}: {1e3 * step_time(lenet(), torch.randn(batch, 1, 28, 28)):.2f} ms")
