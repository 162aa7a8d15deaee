"""Define stand-ins for torch.nn's modules, which have names, options, children and tensors, but compute nothing."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np


class Module:
    """The structural part of torch.nn.Module. options : the arguments of __init__ in order, with their defaults."""

    options: ClassVar[dict[str, Any]] = {}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.training, given = False, dict(zip(self.options, args, strict=False)) | kwargs
        assert set(given) <= set(self.options), given
        vars(self).update(self.options | given)
        vars(self).update(self.arrays())
        names = (name for name in ("weight", "bias") if isinstance(vars(self).get(name), np.ndarray))
        vars(self)["marks"] = {name: SimpleNamespace(requires_grad=True, dtype="torch.float64") for name in names}

    def arrays(self) -> dict[str, Any]:
        """Return the module's own arrays by name, without the arrays of its children."""
        return {}

    def forward(self, x: Any) -> Any:
        """Raise AssertionError, because stand-ins cannot run.

        A test that lifts with check=True must replace `minintk.lifting.check.run`.
        """
        raise AssertionError("a stand-in cannot run")

    def cpu(self) -> Module:
        return self

    double = cpu

    @property
    def _modules(self) -> dict[str, Module]:
        return dict(self.named_children())

    def named_children(self) -> Iterator[tuple[str, Module]]:
        return ((name, value) for name, value in vars(self).items() if isinstance(value, Module))

    def named_modules(self, path: str = "", *, remove_duplicate: bool = True) -> Iterator[tuple[str, Module]]:
        yield path, self
        for name, child in self.named_children():
            yield from child.named_modules(f"{path}.{name}" if path else name, remove_duplicate=remove_duplicate)

    def modules(self) -> Iterator[Module]:
        return (module for _, module in self.named_modules())

    def state_dict(self) -> dict[str, Any]:
        names = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
        own = {name: vars(self)[name] for name in names if isinstance(vars(self).get(name), np.ndarray)}
        return own | {f"{at}.{name}": a for at, m in self.named_children() for name, a in m.state_dict().items()}

    def named_parameters(self, *, remove_duplicate: bool = True) -> Iterator[tuple[str, Any]]:
        """Yield (name, mark) for each parameter. Lifting uses marks to recognise frozen or shared parameters."""
        for path, module in self.named_modules():
            for name, mark in vars(module)["marks"].items():
                yield f"{path}.{name}" if path else name, mark


class Sequential(Module):
    def __init__(self, *modules: Module) -> None:
        super().__init__()
        vars(self).update({str(i): module for i, module in enumerate(modules)})


class Linear(Module):
    options: ClassVar[dict[str, Any]] = {"in_features": 0, "out_features": 0, "bias": True}

    def arrays(self) -> dict[str, Any]:
        o, i = self.out_features, self.in_features  # type: ignore[attr-defined]
        return {"weight": np.zeros((o, i)), "bias": np.zeros(o) if self.bias else None}  # type: ignore[attr-defined]


def module(name: str, **options: Any) -> type[Module]:
    """Return a stand-in class with the name and the options of a torch.nn class, in a module of torch.nn.modules."""
    kind = type(name, (KINDS.get(name.rstrip("12d"), Module),), {"options": options, "forward": lambda self, x: x})
    kind.__module__ = f"torch.nn.modules.{name.lower()}"
    return kind


class Conv(Module):
    def arrays(self) -> dict[str, Any]:
        size, axes = vars(self)["kernel_size"], int(type(self).__name__[-2])
        window = size if isinstance(size, tuple) else (size,) * axes
        o, i = vars(self)["out_channels"], vars(self)["in_channels"] // vars(self)["groups"]
        bias = np.zeros(o) if vars(self)["bias"] else None
        return {"kernel_size": window, "weight": np.zeros((o, i, *window)), "bias": bias}


class BatchNorm(Module):
    def arrays(self) -> dict[str, Any]:
        names = ("weight", "bias", "running_mean", "running_var")
        arrays = {name: np.zeros(vars(self)["num_features"]) for name in names}
        return arrays | {"num_batches_tracked": np.asarray(3)}


class LayerNorm(Module):
    def arrays(self) -> dict[str, Any]:
        shape = vars(self)["normalized_shape"]
        shape = shape if isinstance(shape, tuple) else (shape,)
        both = {"weight": np.zeros(shape), "bias": np.zeros(shape)} if vars(self)["elementwise_affine"] else {}
        return {"normalized_shape": shape} | both


class GroupNorm(Module):
    def arrays(self) -> dict[str, Any]:
        return {name: np.zeros(vars(self)["num_channels"]) for name in ("weight", "bias")}


class Pool(Module):
    def arrays(self) -> dict[str, Any]:
        return {"stride": vars(self)["stride"] or vars(self)["kernel_size"]}


KINDS: dict[str, type[Module]] = {
    "AvgPool": Pool,
    "MaxPool": Pool,
    "Conv": Conv,
    "BatchNorm": BatchNorm,
    "LayerNorm": LayerNorm,
    "GroupNorm": GroupNorm,
}
CONV = {"in_channels": 0, "out_channels": 0, "kernel_size": 0, "stride": 1, "padding": 0, "dilation": 1, "groups": 1}
CONV |= {"bias": True, "padding_mode": "zeros"}  # type: ignore[dict-item]
POOL = {"kernel_size": 0, "stride": None, "padding": 0}
nn = SimpleNamespace(
    Module=Module,
    Sequential=Sequential,
    Linear=Linear,
    **{name: module(name, **CONV) for name in ("Conv1d", "Conv2d")},
    **{
        name: module(name, num_features=0, eps=1e-5, track_running_stats=True)
        for name in ("BatchNorm1d", "BatchNorm2d")
    },
    LayerNorm=module("LayerNorm", normalized_shape=0, eps=1e-5, elementwise_affine=True),
    AvgPool2d=module("AvgPool2d", **POOL, ceil_mode=False, count_include_pad=True, divisor_override=None),
    MaxPool2d=module("MaxPool2d", **POOL, dilation=1, return_indices=False, ceil_mode=False),
    AdaptiveAvgPool2d=module("AdaptiveAvgPool2d", output_size=1),
    GroupNorm=module("GroupNorm", num_groups=1, num_channels=0, eps=1e-5, affine=True),
    ELU=module("ELU", alpha=1.0),
    Hardtanh=module("Hardtanh", min_val=-1.0, max_val=1.0),
    Flatten=module("Flatten", start_dim=1, end_dim=-1),
    Dropout=module("Dropout", p=0.5),
    GELU=module("GELU", approximate="none"),
    LeakyReLU=module("LeakyReLU", negative_slope=0.01),
    Softplus=module("Softplus", beta=1.0, threshold=20.0),
    **{
        name: module(name)
        for name in ("Identity", "ReLU", "SiLU", "Tanh", "Sigmoid", "Softmax", "ReLU6", "Hardswish", "Hardsigmoid")
    },
)
"""The stand-in for torch.nn."""
for kind in (Sequential, Linear):
    kind.__module__ = "torch.nn.modules.container"
