"""Convert a torch.nn module or a dictionary of arrays to a network and its parameters theta.

    modules   converts modules of torch.nn to layers
    graph     converts a `forward` to a tree of layers, by torch.fx
    slots     pairs layers with arrays, and transposes the axes of the arrays
    check     compares the outputs and gradients of the network with those of the module
    by_width  converts a function that returns a module for each width, for coordinate checks
    unlift    converts theta back to arrays

Torch is needed only to lift torch modules, and then the caller has already imported it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from minintk import spec as s
from minintk.arrays import Array
from minintk.lifting.check import check_module, check_run
from minintk.lifting.graph import read
from minintk.lifting.slots import Axes, Lifted, array, frozen, pairs, turned
from minintk.models.network import Network
from minintk.spec.parametrization import Parametrization, PyTorch
from minintk.validate import precision


def lift(
    module: Any, input_shape: Sequence[int], *, spec: s.Layer | None = None, layout: Axes = "torch",
    parametrization: Parametrization | None = None, check: bool = True,
) -> tuple[Network, Array]:  # fmt: skip
    """Return (net, theta) such that the network has the same outputs and gradients as `module`.

    module : a torch.nn module in evaluation mode, its `state_dict()`, or a dictionary of arrays with nested or dotted
        names.  The arrays of a layer must be named weight (or kernel, scale, W, w) and bias (or b).  A BatchNorm also
        has mean and var (or running_mean, running_var).  For CuPy arrays, theta is on the GPU.
    input_shape : the shape of one example, channels last: (H, W, C), (L, C) or (d,).
    spec : the layers, by default from tracing `forward`.  Required for a dictionary, or if tracing fails.  Each Dense,
        Conv or BatchNorm uses the next arrays of its kind, so the arrays must be in the order of the layers.
        A LayerNorm with scale and offset is written as `Sequential(LayerNorm(), BatchNorm())`.
    layout : the order of the arrays' axes, "torch" (out, in, *window) or "flax" (*window, in, out).
    parametrization : defaults to `PyTorch()`, in which theta contains the weights themselves.
    check : if True, run the network and a float64 copy of the module on the CPU, on two random examples.  Outputs (also
        for inputs 10 and 1000 times as large) and weight gradients must agree to within 1e-7 times the largest entry.

    theta has the dtype of the arrays, float32 or float64.  A BatchNorm's arrays become constants, which are not in
    theta.  `check` is ignored for dictionaries.  Raises UnsupportedLayer, with the path of the module, for features
    without a counterpart, such as hooks or shared weights.  Raises ValueError if shapes disagree, arrays are missing or
    left over, a weight has requires_grad=False, a BatchNorm or Dropout is in training mode, or the check fails.

    >>> import numpy as np
    >>> from minintk import Dense, ReLU, Sequential
    >>> state = {"0.weight": np.ones((4, 3)), "0.bias": np.zeros(4), "2.weight": np.ones((1, 4))}
    >>> net, theta = lift(state, (3,), spec=Sequential(Dense(4, b_std=1.0), ReLU(), Dense(1)))
    >>> net(theta, np.ones((1, 3)))
    array([[12.]])
    """
    if not hasattr(module, "state_dict"):
        if not isinstance(module, Mapping) or spec is None:
            raise TypeError(
                f"lift expects a torch.nn module, or a dictionary of arrays and spec=..., got {module!r:.80}"
            )
        return weighed(Network(spec, input_shape, parametrization or PyTorch()), module, layout)
    check_module(module)
    shape, how = tuple(input_shape), PyTorch() if parametrization is None else parametrization
    places: list[str | None] | None = None
    if spec is None:
        piece = read(module, shape)
        net: Network = Lifted(s.Sequential(*piece.layers), shape, how, piece.owners)
        places = piece.places
    else:
        net = Network(spec, shape, how)
    lifted = weighed(net, module.state_dict(), layout, {n for n, p in module.named_parameters() if not p.requires_grad})
    if check:
        again = partial(lift, input_shape=shape, spec=spec, layout=layout, check=False)
        check_run(module, again, net, layout, places)
    return lifted


def weighed(
    net: Network, state: Mapping[str, Any], layout: Axes, constants: Collection[str] = ()
) -> tuple[Network, Array]:
    """Return net, with the statistics in `state`, and theta.  constants : names of arrays that cannot be weights."""
    pieces, statistics = dict[str, Array](), dict[str, Array]()
    for slot, group in pairs(net, state, layout):
        arrays = {key: turned(array(a), slot.order_of(key), layout) for key, (_, a) in group.items()}
        for key, a in arrays.items():
            want = slot.tensors[key].shape if slot.tensors else (slot.features,)
            if tuple(a.shape) != want:
                place = (
                    f"turned to minintk's axes, for layer {slot.name}, {slot.layer!r}, input_shape={net.input_shape}"
                )
                raise ValueError(f"{group[key][0]} expects shape {want}, {place}, got {tuple(a.shape)}")
        statistics |= {} if slot.tensors else frozen(slot, arrays)
        pieces |= {tensor.name: arrays[key] / tensor.row.multiplier for key, tensor in slot.tensors.items()}
        if fixed := [group[key][0] for key in slot.tensors if group[key][0] in constants]:
            remedy = "requires_grad_(True), then name those that learn by params= in mn.ntk, mn.train and so on"
            raise ValueError(f"{fixed[0]} has requires_grad=False, but here all weights of layers learn: {remedy}")
    if not pieces:
        raise ValueError(f"lift expects a model with weights, {net.spec!r} has none")
    theta = net.layout.pack(pieces)
    precision(str(theta.dtype))
    return (net._with({at: a.astype(theta.dtype) for at, a in statistics.items()}) if statistics else net), theta
