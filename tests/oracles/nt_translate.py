"""Translate the networks of neural-tangents' tests into specs, compare the kernels, and save the cases that agree.

    python3 make.py python tests/oracles/nt_translate.py RECORDED.npz

This command reads the output of `nt_record.py`, prints how many kernels agree and why other networks cannot be
expressed, and writes neural_tangents.npz. Layers are replaced by their equivalents. The equivalents of SumPool,
GlobalSumPool and DotGeneral by a number use `Scale`. `nt_cases.py` defines erf with constants (Sigmoid_like) and Gabor.
With b_std = 0 in the standard parametrization, biases start at 0 and learn. Dropout with x2 equal to x1 is counted
separately, because equal rows are one example in neural-tangents and two examples in minintk.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections import Counter
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import minintk as mn  # noqa: E402
from minintk.spec.shapes import UnsupportedLayer, out_shape  # noqa: E402
from tests.oracles.nt_cases import DATA, Gabor, ScaledErf, encode, entries, kernels  # noqa: E402

CLOSE = 1e-8
"""Kernels agree if the relative difference is below CLOSE."""
PLAIN = {"Relu": mn.ReLU, "Abs": mn.Abs, "Gelu": mn.GELU, "Sign": mn.Sign, "Gabor": Gabor, "Sigmoid_like": ScaledErf}
NAMED = {
    "ABRelu", "Erf", "Sin", "Cos", "Rbf", "Exp", "Gaussian", "Hermite", "Monomial", "RectifiedMonomial",
}  # fmt: skip
"""Activations that have the same name and the same arguments in both libraries."""
Json = dict[str, Any]


class Unsaid(Exception):
    """Raised for a network that minintk's layers cannot express. The message states the reason."""


def letters(network: Json, rank: int) -> str:
    """Infer the order of the input axes ("NHWC") from the first convolution, or else from the rank and Dense layers."""

    def first(one: Json) -> str:
        if one["layer"].startswith("Conv") and one.get("dimension_numbers"):
            return str(one["dimension_numbers"][0])
        return next((found for inner in one.get("layers", ()) if (found := first(inner))), "")

    def turned(one: Json) -> bool:
        return (one["layer"] == "Dense" and one.get("channel_axis") == 0) or any(map(turned, one.get("layers", ())))

    usual = {1: "N", 2: "CN" if turned(network) else "NC", 3: "NHC", 4: "NHWC", 5: "NDHWC"}
    return first(network) or usual.get(rank, "")


def flat(network: Json) -> list[Json]:
    """Return the layers of a network, with serial and repeated networks flattened."""
    if network["layer"] == "serial":
        return [one for inner in network["layers"] for one in flat(inner)]
    if network["layer"] == "repeat":
        return flat(network["layers"][0]) * int(network["n"])
    return [network]


def number(value: Any, default: float = 0.0) -> float:
    """Return the value of a number or of an array with one entry, or the default for None."""
    if isinstance(value, dict):
        if np.prod(value["shape"]) != 1:
            raise Unsaid("an array where a number stands")
        value = np.ravel(value["array"])[0]
    return default if value is None else float(value)


class Translation:
    """The translation of one network. It stores the parametrizations found and the signal's axes and shape."""

    def __init__(self, axes: str, shape: tuple[int, ...]) -> None:
        self.axes, self.shape = axes, shape
        self.parametrizations = set[str]()

    def sequence(self, networks: list[Json]) -> list[Any]:
        """Return the layers of consecutive networks. FanOut, parallel and FanIn are translated into one layer."""
        found, waiting = list[Any](), [one for network in networks for one in flat(network)]
        while waiting:
            one = waiting.pop(0)
            if one["layer"] == "FanOut":
                names = [other["layer"] for other in waiting[:2]]
                if len(names) < 2 or names[0] != "parallel" or not names[1].startswith("FanIn"):
                    raise Unsaid("several outputs")
                made = [self.branches(waiting.pop(0)["layers"], waiting.pop(0))]
            elif one["layer"] == "parallel" or one["layer"].startswith("FanIn"):
                raise Unsaid("several inputs or outputs")
            else:
                made = self.layer(one["layer"], one)
            for layer in made:
                found.append(layer)
                self.shape = out_shape(layer, self.shape)
        return found

    def branches(self, parts: list[Json], join: Json) -> Any:
        """Return the Sum, Product or Concat of the translated branches."""
        axes, shape, found = self.axes, self.shape, list[Any]()
        for part in parts:
            self.axes, self.shape = axes, shape
            inside = self.sequence([part])
            found.append(mn.Sequential(*inside) if len(inside) > 1 else inside[0] if inside else mn.Identity())
        self.shape = shape
        if join["layer"] == "FanInConcat" and self.axes[join.get("axis", -1)] != "C":
            where = "the batch" if self.axes[join["axis"]] == "N" else "pixels"
            raise Unsaid(f"FanInConcat over {where}")
        return {"FanInSum": mn.Sum, "FanInProd": mn.Product, "FanInConcat": mn.Concat}[join["layer"]](*found)

    def weights(self, one: Json) -> Json:
        """Return the arguments that set a layer's weights: w_std, b_std and, for biases that start at 0, b_init."""
        self.parametrizations.add(one.get("parameterization", "ntk"))
        bias, scale = one.get("b_std"), number(one.get("W_std"), 1.0)
        if bias is not None and number(bias) == 0 and one.get("parameterization") == "standard":
            return {"w_std": scale, "b_std": 1.0, "b_init": "zeros"}
        return {"w_std": scale, "b_std": number(bias)}

    def windows(self, one: Json, size: str, order: str) -> Json:
        """Return the arguments of a layer with windows. Sizes and strides are in the order height, width."""
        space = [axis for axis in "DHW" if axis in self.axes]
        if len(one[size]) != len(space) or len(space) not in (1, 2):
            raise Unsaid(f"{len(one[size])}-d windows")
        window, stride = (
            tuple(int(numbers[order.index(axis)]) for axis in space)
            for numbers in (one[size], one.get("strides") or [1] * len(space))
        )
        alone = len(space) == 1
        return {
            "size": window[0] if alone else window, "stride": stride[0] if alone else stride,
            "padding": one.get("padding", "VALID").lower(),
        }  # fmt: skip

    def layer(self, name: str, one: Json) -> list[Any]:
        """Return the equivalent layers of minintk. Raise Unsaid if minintk has none."""
        space = [axis for axis in self.axes if axis in "DHW"]
        match name:
            case "Identity":
                return []
            case "Dense":
                if len(space) > 1:
                    raise Unsaid("Dense over the channels of each pixel")
                return [mn.Dense(int(one["out_dim"]), **self.weights(one))]
            case "Conv":
                numbers = one.get("dimension_numbers")
                order = "".join(a for a in numbers[1] if a not in "OI") if numbers else "".join(space)
                how = self.windows(one, "filter_shape", order)
                make: Any = mn.Conv1d if len(space) == 1 else mn.Conv2d
                return [make(int(one["out_chan"]), how.pop("size"), **how, **self.weights(one))]
            case "AvgPool" | "SumPool":
                how = self.windows(one, "window_shape", "".join(space))
                size: Any = how.pop("size")
                if name == "SumPool":
                    return [mn.AvgPool(size, **how), mn.Scale(float(np.prod(size)))]
                return [mn.AvgPool(size, normalize_edges=bool(one.get("normalize_edges", False)), **how)]
            case "GlobalAvgPool" | "GlobalSumPool":
                if len(space) > 2:
                    raise Unsaid("3-d windows")
                self.axes = "".join(axis for axis in self.axes if axis in "NC")
                if not space:
                    return []
                pool = [mn.GlobalAvgPool()]
                return pool if name == "GlobalAvgPool" else [*pool, mn.Scale(float(prod(self.shape[:-1])))]
            case "Flatten":
                self.axes = "NC" if one.get("batch_axis_out", 0) in (0, -2) else "CN"
                return [mn.Flatten()] if space else []
            case "LayerNorm":
                axis = one.get("axis", -1)
                over = {self.axes[a] for a in ([axis] if isinstance(axis, int) else axis)}
                if "N" in over:
                    raise Unsaid("LayerNorm over the batch")
                ours = [a for a in "DHW" if a in self.axes] + ["C"]
                at = tuple(sorted(ours.index(a) - len(ours) for a in over))
                return [mn.LayerNorm(eps=float(one.get("eps", 1e-12)), axes=at if len(at) > 1 else at[0])]
            case "Dropout":
                return [mn.Dropout(1 - float(one["rate"]))] if one.get("mode", "train") == "train" else []
            case "DotGeneral":
                if "lhs" in one and "rhs" in one:
                    raise Unsaid("DotGeneral")
                return [mn.Scale(number(one.get("lhs", one.get("rhs"))))]
            case "GlobalSelfAttention":
                return [self.attention(one, space)]
        return [self.activation(name, one)]

    def attention(self, one: Json, space: list[str]) -> Any:
        """Return the equivalent attention over one axis."""
        if one.get("pos_emb_type", "NONE") != "NONE" or len(space) != 1:
            raise Unsaid("attention over images, or with positions")
        made = {"IDENTITY": mn.Identity(), "ABS": mn.Abs(), "RELU": mn.ReLU()}
        return mn.GlobalSelfAttention(
            int(one["n_chan_out"]), heads=int(one["n_heads"]), key_channels=int(one["n_chan_key"]),
            value_channels=int(one["n_chan_val"]), scaling="linear" if one.get("linear_scaling", True) else "sqrt",
            zeta=made.get(one.get("attention_mechanism", "SOFTMAX"), "softmax"), b_std=number(one.get("b_std")),
            qk_std=number(one.get("W_query_std"), 1.0) * number(one.get("W_key_std"), 1.0),
            w_std=number(one.get("W_out_std"), 1.0) * number(one.get("W_value_std"), 1.0),
        )  # fmt: skip

    def activation(self, name: str, one: Json) -> Any:
        """Return the equivalent activation."""
        given = {key: value for key, value in one.items() if key not in ("layer", "do_stabilize")}
        if name == "LeakyRelu":
            return mn.LeakyReLU(number(given["alpha"]))
        if name in PLAIN and not given.get("approximate"):
            return PLAIN[name]()
        if name == "Polynomial":
            coef = given["coef"]
            return mn.Polynomial(tuple(map(float, np.ravel(coef["array"] if isinstance(coef, dict) else coef))))
        if name not in NAMED:
            raise Unsaid(name)
        constants = {key: value if isinstance(value, int) else number(value) for key, value in given.items()}
        if name == "Erf":
            found = {"a": 1.0, "b": 1.0, "c": 0.0, **constants}
            return mn.Erf() if tuple(found.values()) == (1, 1, 0) else ScaledErf(**found)
        return getattr(mn, name)(**constants)


def ordered(reference: Any, reversed_: bool, axes: str) -> Any:
    """Reorder the axes of a kernel of pairs of pixels from (N, M, A, A', B, B') to (N, M, H, W, H', W')."""
    if reference.ndim == 2:
        return reference
    theirs = [axis for axis in axes if axis in "DHW"][:: -1 if reversed_ else 1]
    at = [theirs.index(axis) for axis in "DHW" if axis in theirs]
    return reference.transpose(0, 1, *[2 + 2 * i for i in at], *[3 + 2 * i for i in at])


def compare(case: Json, arrays: Json) -> tuple[str, str, Json]:
    """Return the outcome of a case, the reason, and, if kernels of equal shapes were compared, its row for the file."""
    if "x1" not in arrays:
        return "cannot be said", "several inputs", {}
    if case["options"]:
        return "cannot be said", ", ".join(case["options"]), {}
    network, x1, x2 = case["network"], arrays["x1"], arrays.get("x2")
    axes = letters(network, x1.ndim)
    want = ["N", *(axis for axis in "DHW" if axis in axes), "C"]
    if sorted(axes) != sorted(want) or len(axes) != x1.ndim:
        return "cannot be said", f"inputs of {x1.ndim} axes", {}
    order = [axes.index(axis) for axis in want]
    x1, x2 = x1.transpose(order), None if x2 is None else x2.transpose(order)
    one = Translation(axes, x1.shape[1:])
    try:
        layers = one.sequence([network])
    except Unsaid as why:
        return "cannot be said", str(why), {}
    except (UnsupportedLayer, ValueError, TypeError) as why:
        return "refused", f"{type(why).__name__}: {why}"[:90], {}
    if not layers or len(one.parametrizations) > 1:
        return "cannot be said", "layers of two parametrizations" if layers else "no layer at all", {}
    if case.get("error"):
        return "neural-tangents fails", case["error"][:60], {}
    if any(isinstance(layer, mn.Dropout) for layer in layers) and x2 is not None and np.array_equal(x1, x2):
        return "another convention", "Dropout, x2 equal to x1", {}
    spec, standard = mn.Sequential(*layers), "standard" in one.parametrizations
    row: Json = {"spec": encode(spec), "standard": standard, "test": case["test"], "x1": x1, "x2": x2}
    reversed_, names = case.get("is_reversed", False), [name for name in ("nngp", "ntk") if name in arrays]
    wanted = {name: ordered(arrays[name], reversed_, one.axes) for name in names}
    rank, worst = max((a.ndim for a in wanted.values()), default=2), 0.0
    try:
        found = kernels(spec, standard, x1, x2, rank)
        for name, reference in wanted.items():
            if not np.isfinite(reference).all():
                return "neural-tangents fails", "it gives NaN", {}
            got, largest = np.asarray(found[name]()), float(np.abs(reference).max())
            if got.shape != reference.shape:
                return "differs", f"shape {got.shape}, {reference.shape}", {}
            worst = max(worst, float(np.abs(got - reference).max()) / max(largest, 1e-300))
            row[name] = {"shape": list(got.shape), "largest": largest, "values": entries(reference)}
    except (UnsupportedLayer, ValueError, TypeError, MemoryError) as why:
        return "refused", f"{type(why).__name__}: {why}"[:90], {}
    return ("agrees", "", {**row, "error": worst}) if worst < CLOSE else ("differs", f"by {worst:.1e}", row)


def write(rows: list[Json]) -> None:
    """Write neural_tangents.npz."""
    inputs, places, values = list[Any](), dict[Any, int](), list[Any]()
    for row in rows:
        row.pop("error")
        for name in ("x1", "x2"):
            x = row[name]
            if x is not None:
                key = x.shape, x.tobytes()
                if key not in places:
                    places[key] = len(inputs)
                    inputs.append(x)
                row[name] = places[key]
        for name in ("nngp", "ntk"):
            if name in row:
                row[name]["from"] = sum(map(len, values))
                values.append(row[name].pop("values"))
    texts = {"cases": rows, "shapes": [list(x.shape) for x in inputs]}
    packed: Any = {name: np.frombuffer(json.dumps(one).encode(), np.uint8) for name, one in texts.items()}
    flat_inputs, flat_values = np.concatenate([x.ravel() for x in inputs]), np.concatenate(values)
    np.savez_compressed(DATA, inputs=flat_inputs, values=flat_values, **packed)


def main(path: str) -> None:
    """Compare all cases, print the table, and write the data file."""
    rows, counts = list[Json](), Counter[tuple[str, str]]()
    with np.load(path) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i, case in enumerate(json.loads(file["cases"].tobytes())):
            arrays = {name: file[f"{name} {i}"] for name in ("x1", "x2", "nngp", "ntk") if f"{name} {i}" in file}
            what, why, row = compare(case, arrays)
            counts[what, why] += 1
            if what == "agrees":
                rows.append(row)
    print(f"{sum(counts.values())} distinct kernels: {dict(Counter(key[0] for key in counts.elements()))}")
    print("\n".join(f"{n:5} {what}: {why}" for (what, why), n in counts.most_common()))
    errors = np.array([row["error"] for row in rows])
    print(f"errors: median {np.median(errors):.1e}, above 1e-12 {np.sum(errors > 1e-12)}, largest {errors.max():.1e}")
    write(rows)
    print(f"{DATA.name}: {len(rows)} cases, {DATA.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1])
