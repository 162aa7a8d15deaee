"""Networks of torch.nn and Flax: the same outputs and gradients, there and back, and what is refused in words."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
import pytest

import minintk as mn
from minintk.lifting.slots import flat
from minintk.thresholds import THRESHOLDS
from tests.kit import torch_standin
from tests.kit.golden import LIFTED
from tests.kit.lifted import check_recorded, check_refused, images, inputs, lift_two_layers, loaded, sines, summary

Host = np.ndarray[Any, Any]


@pytest.mark.parametrize(("dtype", "digits"), [("float64", 1e-12), ("float32", 2e-6)])
def test_outputs_and_gradients_are_torchs(dtype: str, digits: float) -> None:
    check_recorded(dtype, digits)


def block(channels: int, stride: int) -> mn.Sequential:
    conv = mn.Conv2d(channels, stride=stride, padding=1), mn.BatchNorm(), mn.ReLU(), mn.Conv2d(channels, padding=1)
    short = mn.Sequential(mn.Conv2d(channels, 1, stride=stride, padding=0), mn.BatchNorm())
    return mn.Sequential(mn.Residual(mn.Sequential(*conv, mn.BatchNorm()), short), mn.ReLU())


LENET = mn.Sequential(
    *(mn.Conv2d(6, 5, padding=2, b_std=1.0), mn.Tanh(), mn.AvgPool(2), mn.Conv2d(16, 5, padding=0, b_std=1.0)),
    *(mn.Tanh(), mn.AvgPool(2), mn.Flatten(), mn.Dense(120, b_std=1.0), mn.Tanh(), mn.Dense(84, b_std=1.0), mn.Tanh()),
    mn.Dense(10, b_std=1.0),
)  # fmt: skip
RESNET = mn.Sequential(
    mn.Conv2d(16, padding=1), mn.BatchNorm(), mn.ReLU(), block(16, 1), block(32, 2), block(64, 2), mn.GlobalAvgPool(),
    mn.Dense(10, b_std=1.0),
)  # fmt: skip


def distance(spec: mn.Sequential, x: Host, theta: Host, other: Host) -> float:
    """The gradient of sum(f u) at theta in float32 beside that at `other` in float64, over the largest entry."""
    u, found = np.random.default_rng(1).standard_normal((len(x), 10)).astype(np.float32), list[Any]()
    net = mn.Network(spec, x.shape[1:], mn.PyTorch())
    fixed = net.calibrate(theta.astype(float), x.astype(float)).statistics if spec is RESNET else {}
    for a in (theta, other.astype(np.float64)):
        frozen = net._with({name: b.astype(np.float32).astype(a.dtype) for name, b in fixed.items()}) if fixed else net
        found.append(frozen.linearize(a, x.astype(a.dtype))[1].vjp(u.astype(a.dtype)))
    return float(np.abs(found[0] - found[1]).max() / np.abs(found[1]).max())


@pytest.mark.parametrize("written", [True, False], ids=["as written", "fast"])
@pytest.mark.parametrize(("spec", "shape"), [(LENET, (28, 28, 1)), (RESNET, (16, 16, 3))], ids=["LeNet", "ResNet"])
def test_float32_gradients_are_right_to_a_millionth(
    spec: Any, shape: Any, written: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch's float64 is ours to 1e-12, above; weights that differ by 1e-5 are refused."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((32, *shape)).astype(np.float32)
    theta = mn.Network(spec, shape, mn.PyTorch()).init(rng, dtype=np.float32)
    monkeypatch.setattr(THRESHOLDS, "plain", inf if written else 0)
    assert distance(spec, x, theta, theta) < 1e-6 < distance(spec, x, theta, theta * (1 + 1e-5))


def flax_state(state: dict[str, Host]) -> dict[str, Any]:
    """The numbers of `images` as Flax keeps them: (*window, in, out), features in the order (H, W, C)."""
    nested: dict[str, Any] = {"params": {}, "batch_stats": {}}
    for name, a in state.items():
        layer, _, key = name.rpartition(".")
        if a.ndim > 1:
            a, key = np.moveaxis(a, (0, 1), (-1, -2)), "kernel"
        elif key == "weight":
            key = "scale"
        if layer in ("7", "8") and a.shape[:1] == (40,):  # C, H, W = 5, 2, 4
            a = np.moveaxis(a.reshape(5, 2, 4, *a.shape[1:]), 0, 2).reshape(a.shape)
        if key != "num_batches_tracked":
            where = nested["batch_stats" if key.startswith("running") else "params"]
            where.setdefault(f"layer_{layer}", {})[key.removeprefix("running_")] = a
    return nested


@pytest.mark.parametrize("parametrization", [None, mn.NTK(), mn.SpectralMuP()], ids=repr)
def test_flax_gives_the_same_and_takes_it_back(parametrization: Any) -> None:
    model, state = loaded(images(torch_standin.nn))
    spec, nested = mn.lift(model, (15, 16, 3), check=False)[0].spec, flax_state(state)
    net, theta = mn.lift(nested, (15, 16, 3), spec=spec, layout="flax", parametrization=parametrization)
    f = net(theta, np.moveaxis(inputs((3, 15, 16)), 1, -1).copy())
    assert np.abs(f.ravel() - LIFTED["f"]).max() < 1e-12 * np.abs(LIFTED["f"]).max()
    back = dict(flat(mn.unlift(net, theta, nested, layout="flax")))
    for name, a in flat(nested):
        np.testing.assert_allclose(back[name], a, rtol=1e-15)


def test_the_way_home_gives_every_number_back() -> None:
    model, state = loaded(images(torch_standin.nn), "float32")
    net, theta = mn.lift(model, (15, 16, 3), check=False)
    back = mn.unlift(net, theta, state)
    assert list(back) == list(state)
    assert all(np.array_equal(back[name], a) and back[name].dtype == a.dtype for name, a in state.items())


def test_statistics_of_another_batch_go_home_too() -> None:
    model, state = loaded(images(torch_standin.nn))
    net, theta = mn.lift(model, (15, 16, 3), check=False)
    x = np.moveaxis(inputs((3, 15, 16), 9), 1, -1).copy()
    net = mn.Network(net.spec, (15, 16, 3), mn.PyTorch()).calibrate(theta, x)
    again, same = mn.lift(mn.unlift(net, theta, state), (15, 16, 3), spec=net.spec)
    assert np.array_equal(theta, same)
    np.testing.assert_allclose(again(same, x), net(theta, x), rtol=1e-12)
    with pytest.raises(ValueError, match=r"layer 1: net = net\.calibrate"):
        mn.unlift(mn.Network(net.spec, (15, 16, 3)), theta, state)


def test_branches_are_lifted_in_the_order_of_the_spec() -> None:
    """x + tanh(x A') and a projected shortcut, written out."""
    rng = np.random.default_rng(0)
    A, B, C = (rng.standard_normal(shape) for shape in ((4, 4), (2, 4), (2, 4)))
    spec = mn.Sequential(
        mn.Residual(mn.Sequential(mn.Dense(4), mn.Tanh())), mn.Residual(mn.Dense(2), shortcut=mn.Dense(2))
    )
    net, theta = mn.lift({"a": {"w": A.T}, "b": {"w": B.T}, "c": {"w": C.T}}, (4,), spec=spec, layout="flax")
    x = rng.standard_normal((5, 4))
    h = x + np.tanh(x @ A.T)
    np.testing.assert_allclose(net(theta, x), h @ B.T + h @ C.T, rtol=1e-13)


# ------------------------------------------------------------------------------------------------ refusals

NN = torch_standin.nn
REFUSED: dict[str, tuple[Any, tuple[int, ...], str]] = {
    "groups": (NN.Sequential(NN.Conv1d(4, 4, 3, groups=2)), (8, 4), "Conv1d at '0' has groups=2; here it is 1"),
    "edges": (
        NN.Sequential(NN.Sequential(NN.Conv2d(1, 1, 3, padding_mode="reflect"))),
        (3, 3, 1),
        r"^replace it, or give spec=.*Conv2d at '0\.0' has padding_mode='reflect'",
    ),
    "unknown": (NN.Sequential(NN.ReLU(), NN.Softmax()), (3,), "^replace it.*Softmax at '1' is none of"),
    "forward": (type("Net", (NN.Sequential,), {"forward": lambda self, x: x})(), (3,), "^give spec=.*Net at 'the top'"),
    "pool": (NN.Sequential(NN.AvgPool2d(2, divisor_override=3)), (8, 8, 4), "divisor_override=3"),
    "ceil": (
        NN.Sequential(NN.AvgPool2d(3, 2, 1, ceil_mode=True)),
        (6, 6, 1),
        r"^take count_include_pad=False: AvgPool2d at '0'",
    ),
    "rows": (NN.Sequential(NN.Linear(4, 3)), (2, 4), r"^put Flatten before it: Linear at '0' acts on the last axis"),
    "norm": (NN.Sequential(NN.LayerNorm(8)), (8, 8, 4), r"here it is over the last axis of \(8, 8, 4\)"),
    "tied": (NN.Sequential(*[NN.Linear(3, 3)] * 2), (3,), r"'1\.weight' is '0\.weight' again, the same array"),
    "threshold": (NN.Sequential(NN.Softplus(2.0, 1.0)), (3,), r"Softplus at '0' has threshold=1\.0; here it is 20"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_modules_without_a_counterpart_are_named(name: str) -> None:
    model, shape, message = REFUSED[name]
    with pytest.raises(mn.UnsupportedLayer, match=message):
        mn.lift(model, shape)


def test_padding_that_does_not_count_is_left_out_of_means() -> None:
    model = NN.Sequential(NN.AvgPool2d(3, 2, 1, count_include_pad=False), NN.Flatten(), NN.Linear(6, 2))
    net, _ = mn.lift(model, (5, 4, 1), check=False)
    assert next(iter(net.spec)) == mn.AvgPool(3, stride=2, padding=1, normalize_edges=True)


def test_a_module_in_training_is_refused() -> None:
    model = NN.Sequential(NN.Linear(3, 3), NN.Dropout(0.1))
    vars(model)["1"].training = True
    with pytest.raises(ValueError, match="evaluation mode"):
        mn.lift(model, (3,))


def test_a_module_that_computes_something_else_is_refused() -> None:
    check_refused()


def test_what_differs_is_named() -> None:
    with pytest.raises(ValueError, match=r"other outputs.* by [\d.]+ of the largest; 'inp' is called where 'out' is"):
        lift_two_layers("out", "inp")
    with pytest.raises(ValueError, match=r"other outputs than the module, by 0\.\d+ of the largest: give spec="):
        lift_two_layers("inp", "out", f=1.0)
    with pytest.raises(ValueError, match=r"'out\.weight' has another gradient than in the module, by .*not detach"):
        lift_two_layers("inp", "out", **{"out.weight": 1.0})
    with pytest.raises(ValueError, match=r"could not run the module on \(2, 3\), AttributeError: .*check=False"):
        mn.lift(NN.Sequential(NN.Linear(3, 3)), (3,))


@pytest.mark.parametrize("owner", ["module", "weight"])
def test_hooks_are_refused(owner: str) -> None:
    model = NN.Sequential(NN.Linear(3, 3))
    one = vars(model)["0"] if owner == "module" else vars(vars(model)["0"])["marks"]["weight"]
    vars(one)["_backward_hooks"] = {0: print}
    with pytest.raises(mn.UnsupportedLayer, match=r"'0(\.weight)?' has backward_hooks, .* remove them"):
        mn.lift(model, (3,), check=False)


@pytest.mark.parametrize("by", ["layer", "weight"])
def test_tied_weights_are_refused_with_a_spec_too(by: str) -> None:
    """Its outputs are right, its tangent kernel is not: 0.25 of it is missing for x W W of one number."""
    model = NN.Sequential(NN.Linear(8, 8), NN.Linear(8, 8))
    first, second = vars(model)["0"], vars(model)["1"]
    if by == "layer":
        vars(model)["1"] = first
    else:
        vars(second)["marks"]["weight"] = vars(first)["marks"]["weight"]
    with pytest.raises(mn.UnsupportedLayer, match=r"'1\.weight' is '0\.weight' again, the same array.* with copies"):
        mn.lift(model, (8,), spec=mn.Sequential(*[mn.Dense(8, b_std=1.0)] * 2), check=False)


def test_frozen_weights_are_refused_and_frozen_scales_are_not() -> None:
    model = NN.Sequential(NN.Linear(3, 4), NN.BatchNorm1d(4), NN.Linear(4, 1))
    vars(vars(model)["1"])["running_var"][:] = 1.0
    vars(vars(model)["1"])["marks"]["weight"].requires_grad = False
    mn.lift(model, (3,), check=False)
    vars(vars(model)["0"])["marks"]["bias"].requires_grad = False
    with pytest.raises(ValueError, match=r"0\.bias has requires_grad=False.*scales=\{'0\.b': 0\} in mn\.ntk"):
        mn.lift(model, (3,), check=False)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_refused(dtype: str) -> None:
    model = NN.Linear(3, 4)
    vars(model)["marks"]["bias"].dtype = f"torch.{dtype}"
    with pytest.raises(TypeError, match=rf"'bias' expects float32 or float64, got torch\.{dtype}: module\.float"):
        mn.lift(model, (3,))


SPEC = mn.Sequential(mn.Dense(4, b_std=1.0), mn.BatchNorm(), mn.ReLU(), mn.Dense(2))
ONE = np.ones(4)
STATE = {"0": {"w": np.ones((4, 3)), "b": ONE}, "1": {"mean": ONE, "var": ONE}, "3": {"w": np.ones((2, 4))}}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "shape": (STATE | {"3": {"w": np.ones((2, 5))}}, r"3\.w expects shape \(4, 2\).*got \(5, 2\)"),
    "missing": ({"0": STATE["0"], "3": STATE["3"]}, r"layer 1, .*expects \['mean', 'var'\], got {}"),
    "no bias": (STATE | {"0": {"w": np.ones((4, 3))}}, r"expects \['bias', 'weight'\], got {'0': \['weight'\]}"),
    "left over": (STATE | {"4": {"w": np.ones((2, 2))}}, r"left over.*\['4'\]"),
    "strange": (STATE | {"4": {"embedding": ONE}}, r"got 4\.embedding"),
    "sorted": ({"l_10": STATE["0"], "l_2": STATE["3"]}, "l_2 comes late"),
    "scale 0": (STATE | {"1": {"mean": ONE, "var": ONE, "weight": 0 * ONE, "bias": ONE}}, "scale 0 and an offset"),
}


@pytest.mark.parametrize("name", WRONG)
def test_arrays_that_do_not_fit_are_named(name: str) -> None:
    state, message = WRONG[name]
    with pytest.raises(ValueError, match=message):
        mn.lift(state, (3,), spec=SPEC)


def test_other_misuse_is_refused() -> None:
    with pytest.raises(TypeError, match="dictionary of arrays and spec"):
        mn.lift(STATE, (3,))
    with pytest.raises(ValueError, match="layout expects 'torch' or 'flax'"):
        mn.lift(STATE, (3,), spec=SPEC, layout="jax")  # type: ignore[arg-type]
    net, theta = mn.lift(STATE, (3,), spec=SPEC)
    with pytest.raises(ValueError, match=r"theta\[i\] of several"):
        mn.unlift(net, np.stack([theta, theta]), STATE)
    with pytest.raises(ValueError, match="order"):
        mn.lift({}, (2, 2, 3), spec=mn.Flatten())
    with pytest.raises(ValueError, match=r"a model with weights, Sequential\(ReLU\(\)\) has none"):
        mn.lift(NN.ReLU(), (3,))
    split = mn.Sequential(mn.Flatten(), mn.Residual(mn.Dense(12)), mn.Dense(1))
    with pytest.raises(ValueError, match="adds features in two orders"):
        mn.lift({"a.w": np.ones((12, 12)), "b.w": np.ones((1, 12))}, (2, 2, 3), spec=split)


# ---------------------------------------------------------------------------------------- where torch is installed


def test_torch_itself() -> None:
    """The recorded numbers again, and all modules read off torch's own."""
    torch = pytest.importorskip("torch")
    model = images(torch.nn).double().eval()
    state = sines({name: a.numpy() for name, a in model.state_dict().items()})
    model.load_state_dict({name: torch.as_tensor(a) for name, a in state.items()})
    f = model(torch.as_tensor(inputs((3, 15, 16))))
    u = np.sin(np.arange(12.0)).reshape(4, 3)
    (f * torch.as_tensor(u)).sum().backward()
    numbers, sizes = summary({name: p.grad.numpy() for name, p in model.named_parameters()})
    assert np.abs(f.detach().numpy().ravel() - LIFTED["f"]).max() < 1e-12
    assert np.all(np.abs(numbers - LIFTED["gradients"]) < 1e-12 * sizes)
    for dtype in ("float32", "float64"):  # ours is as near to float64 as torch's own float32
        single = images(torch.nn).to(getattr(torch, dtype)).eval()
        single.load_state_dict({name: torch.as_tensor(a.astype(dtype)) for name, a in state.items()})
        (single(torch.as_tensor(inputs((3, 15, 16), dtype=dtype))) * torch.as_tensor(u.astype(dtype))).sum().backward()
        theirs, _ = summary({name: p.grad.numpy() for name, p in single.named_parameters()})
        net, theta = mn.lift(single, (15, 16, 3))
        x = np.ascontiguousarray(np.moveaxis(inputs((3, 15, 16), dtype=dtype), 1, -1))
        ours, _ = summary(mn.unlift(net, net.linearize(theta, x)[1].vjp(u.astype(dtype)), single.state_dict()))
        apart = [float(np.linalg.norm((one - LIFTED["gradients"]) / sizes)) for one in (ours, theirs)]
        assert apart[0] < max(2 * apart[1], 1e-12)
    net, theta = mn.lift(model, (15, 16, 3))
    standin, same = mn.lift(loaded(images(NN))[0], (15, 16, 3), check=False)
    assert standin.spec == net.spec
    assert np.array_equal(theta, same)
    assert all(np.array_equal(a, state[name]) for name, a in mn.unlift(net, theta, model.state_dict()).items())


def test_silu_is_a_swish() -> None:
    nn = torch_standin.nn
    net, _ = mn.lift(nn.Sequential(nn.Linear(3, 4), nn.SiLU()), (3,), check=False)
    assert net.spec == mn.Sequential(mn.Dense(4, b_std=1.0), mn.Swish())


def test_what_torch_runs_decides() -> None:
    """Right or refused by name, each of which was silently wrong."""
    torch = pytest.importorskip("torch")
    nn = torch.nn

    def two(first: str, second: str, forward: Any) -> Any:
        model = type("Two", (nn.Module,), {"forward": forward})()
        model.add_module(first, nn.Linear(8, 8))
        model.add_module(second, nn.Linear(8, 8))
        return model

    spec = mn.Sequential(mn.Dense(8, b_std=1.0), mn.Tanh(), mn.Dense(8, b_std=1.0))
    x = torch.randn(4, 8, dtype=torch.float64)
    right = two("inp", "out", lambda m, x: m.out(torch.tanh(m.inp(x)))).eval()
    with torch.no_grad():  # as evaluation is often written
        net, theta = mn.lift(right, (8,), spec=spec)
    assert np.abs(net(theta, x.numpy().astype(np.float32)) - right(x.float()).detach().numpy()).max() < 1e-6
    assert all(p.grad is None and p.dtype == torch.float32 for p in right.parameters())  # it is a copy that runs
    wrong = {
        "'inp' is called where 'out' is defined": two("out", "inp", lambda m, x: m.out(torch.tanh(m.inp(x)))),
        "'inp\\.weight' has another gradient": two("inp", "out", lambda m, x: m.out(torch.tanh(m.inp(x).detach()))),
        "by [\\d.e-]+ of the largest: spec": two("inp", "out", lambda m, x: 2 * m.out(torch.tanh(m.inp(x)))),
        "from 'out' on: spec": two("inp", "out", lambda m, x: m.out(torch.sigmoid(m.inp(x)))),
        "could not run the module on \\(2, 8\\), RuntimeError: mat1": two("inp", "out", lambda m, x: m.out(m.inp(x.T))),
    }
    for message, module in wrong.items():
        with pytest.raises(ValueError, match=message):
            mn.lift(module.eval(), (8,), spec=spec)
        mn.lift(module, (8,), spec=spec, check=False)

    class Wide(nn.ReLU):  # type: ignore[name-defined,misc]
        def __call__(self, x: Any) -> Any:
            return 2 * super().__call__(x)

    with pytest.raises(ValueError, match=r"by 0\.5 of the largest, from '2' on"):
        mn.lift(nn.Sequential(nn.Linear(8, 8), Wide(), nn.Linear(8, 1, bias=False)).eval(), (8,))
    hooked = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
    hooked[0].register_forward_hook(lambda m, given, y: 2 * y)
    with pytest.raises(mn.UnsupportedLayer, match="'0' has forward_hooks"):
        mn.lift(hooked.eval(), (8,))
    tied = two("inp", "out", lambda m, x: m.out(m.inp(x)))
    tied.out.weight = tied.inp.weight
    with pytest.raises(mn.UnsupportedLayer, match=r"'out\.weight' is 'inp\.weight' again"):
        mn.lift(tied, (8,), spec=spec)
    frozen = nn.Sequential(nn.Linear(8, 8)).eval().requires_grad_(False)
    with pytest.raises(ValueError, match=r"0\.weight has requires_grad=False"):
        mn.lift(frozen, (8,))
    with pytest.raises(TypeError, match=r"'0\.weight' expects float32 or float64, got torch\.bfloat16"):
        mn.lift(nn.Sequential(nn.Linear(8, 8)).bfloat16(), (8,))
