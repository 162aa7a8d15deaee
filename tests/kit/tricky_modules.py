"""Define torch modules that `mn.lift` might lift wrongly. Each entry has an input shape and a function torch -> module.

Lifting a module of RIGHT must preserve torch's outputs and gradients. Lifting one of REFUSED must raise its error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Make = Callable[[Any], Any]
V, IMAGE = (8,), (8, 8, 3)
"""Shapes of one input: a vector, and an image with channels last."""


def net(forward: Callable[[Any, Any, Any], Any], **parts: Make) -> Make:
    """Return a function that builds a module with the submodules `parts` and the given forward(module, x, torch)."""

    def make(torch: Any) -> Any:
        model = type("Net", (torch.nn.Module,), {"forward": lambda self, x: forward(self, x, torch)})()
        for name, part in parts.items():
            setattr(model, name, part(torch))
        return model

    return make


def linear(i: int = 8, o: int = 8) -> Make:
    """Return a function that builds a Linear layer."""
    return lambda torch: torch.nn.Linear(i, o)


def conv(i: int, o: int, k: int = 3, **options: Any) -> Make:
    """Return a function that builds a convolution with padding k // 2."""
    return lambda torch: torch.nn.Conv2d(i, o, k, padding=k // 2, **options)


def bn(torch: Any) -> Any:
    """Return a BatchNorm of 6 channels with nontrivial statistics."""
    module = torch.nn.BatchNorm2d(6)
    for a in (module.running_mean, module.bias.data):
        a.normal_(0, 0.1)
    for a in (module.running_var, module.weight.data):
        a.uniform_(0.5, 1.5)
    return module


def vectors(forward: Callable[[Any, Any, Any], Any], **more: Make) -> Make:
    """Return a function that builds a module with Linear layers `c` (8 to 3), `b` and `a`, defined in this order."""
    return net(forward, **{"c": linear(8, 3), "b": linear(), "a": linear()} | more)


def attends(m: Any, x: Any, torch: Any) -> Any:
    """Apply attention to x : (N, T, 8), average over T, and apply `m.c`. `m.a` gives the queries and `m.b` the keys."""
    return m.c((torch.softmax(m.a(x) @ m.b(x).transpose(1, 2), -1) @ x).mean(1))


def images(forward: Callable[[Any, Any, Any], Any], features: int = 384, **more: Make) -> Make:
    """Return a function that builds a module with parts `fc`, `n`, `b` and `a`; `forward` acts on n(b(relu(a(x))))."""
    parts = {"fc": linear(features, 3), "n": bn, "b": conv(6, 6), "a": conv(3, 6)} | more
    return net(lambda m, x, t: forward(m, m.n(m.b(t.relu(m.a(x)))), t), **parts)


def chain(*parts: Make) -> Make:
    """Return a function that builds a torch.nn.Sequential of `parts`."""
    return lambda torch: torch.nn.Sequential(*[part(torch) for part in parts])


def nn(name: str, *args: Any, **options: Any) -> Make:
    """Return a function that builds the torch.nn module called `name`."""
    return lambda torch: getattr(torch.nn, name)(*args, **options)


def between(forward: Callable[[Any, Any], Any]) -> Make:
    """Return a function that builds a module that computes c(forward(b(relu(a(x)))))."""
    return vectors(lambda m, x, t: m.c(forward(m.b(t.relu(m.a(x))), t)))


def shared_activation(torch: Any) -> Any:
    relu = torch.nn.ReLU()
    return torch.nn.Sequential(torch.nn.Linear(8, 8), relu, torch.nn.Linear(8, 8), relu)


def subclass_of_linear(torch: Any) -> Any:
    return torch.nn.Sequential(type("Lin", (torch.nn.Linear,), {})(8, 3))


def overridden_linear(torch: Any) -> Any:
    def forward(self: Any, x: Any) -> Any:
        return torch.nn.functional.linear(2 * x, self.weight, self.bias)

    return torch.nn.Sequential(type("Lin", (torch.nn.Linear,), {"forward": forward})(8, 3))


def second_argument(torch: Any) -> Any:
    def forward(self: Any, x: Any, y: Any = None) -> Any:
        return self.a(x)

    model = type("Net", (torch.nn.Module,), {"forward": forward})()
    model.a = torch.nn.Linear(8, 3)
    return model


def excited(m: Any, h: Any, t: Any) -> Any:
    """Apply squeeze-and-excitation to `h`, and then the readout `m.fc` (Hu et al. 2018)."""
    s = m.u(t.relu(m.d(t.nn.functional.adaptive_avg_pool2d(h, 1))))
    return m.fc((h * t.sigmoid(s)).flatten(1))


RIGHT: dict[str, tuple[tuple[int, ...], Make]] = {
    "defined in another order": (V, vectors(lambda m, x, t: m.c(m.b(t.tanh(m.a(x)))))),
    "residual": (V, vectors(lambda m, x, t: m.c(x + m.b(t.relu(m.a(x)))))),
    "x - f(x)": (V, vectors(lambda m, x, t: m.c(x - m.b(t.relu(m.a(x)))))),
    "f(x) - x": (V, vectors(lambda m, x, t: m.c(m.b(t.relu(m.a(x))) - x))),
    "gate": (V, vectors(lambda m, x, t: m.c(m.a(x) * t.sigmoid(m.b(x))))),
    "h * h": (V, between(lambda h, t: h * h)),
    "h + h": (V, between(lambda h, t: h + h)),
    "numbers": (V, between(lambda h, t: -(0.5 * h / 3))),
    "dropout by self.training": (
        V,
        vectors(lambda m, x, t: m.c(t.nn.functional.dropout(m.b(t.relu(m.a(x))), 0.5, m.training))),
    ),
    "concat": (
        V,
        vectors(
            lambda m, x, t: m.c(t.cat([m.b(x), x, t.relu(m.a(x))], -1)), c=linear(17, 3), b=linear(8, 4), a=linear(8, 5)
        ),
    ),
    "crossing, without weights": (
        V,
        vectors(lambda m, x, t: (lambda a: (lambda b: m.c(m.b(m.a(b) * a + x * b)))(t.sigmoid(a + x)))(t.tanh(x))),
    ),
    "functions": (
        V,
        between(lambda h, t: t.nn.functional.elu(t.nn.functional.leaky_relu(t.nn.functional.gelu(h), 0.2), 0.5)),
    ),
    "in place": (V, between(lambda h, t: h.add_(t.tanh(h)).relu_())),
    "shared activation": (V, shared_activation),
    "subclass of Linear": (V, subclass_of_linear),
    "an argument with a default": (V, second_argument),
    "forwards inside of a Sequential": (
        V,
        chain(linear(), net(lambda m, x, t: x * t.sigmoid(x)), vectors(lambda m, x, t: m.c(x + m.b(t.relu(m.a(x)))))),
    ),
    "flatten": (IMAGE, images(lambda m, h, t: m.fc(t.flatten(t.relu(h), 1)))),
    "reshape": (IMAGE, images(lambda m, h, t: m.fc(t.relu(h).reshape(h.shape[0], -1)))),
    "view": (IMAGE, images(lambda m, h, t: m.fc(h.view(h.size(0), 384)))),
    "mean": (IMAGE, images(lambda m, h, t: m.fc(t.relu(h).mean([-1, -2])), 6)),
    "mean, one pixel": (IMAGE, images(lambda m, h, t: m.fc(t.relu(h).mean((2, 3), keepdim=True).flatten(1)), 6)),
    "max_pool2d": (IMAGE, images(lambda m, h, t: m.fc(t.nn.functional.max_pool2d(h, 2).flatten(1)), 96)),
    "max_pool2d, overlapping": (
        IMAGE,
        images(lambda m, h, t: m.fc(t.nn.functional.max_pool2d(h, 3, stride=2, padding=1).flatten(1)), 96),
    ),
    "avg_pool2d": (IMAGE, images(lambda m, h, t: m.fc(t.nn.functional.avg_pool2d(h, (2, 4)).flatten(1)), 48)),
    "squeeze and excitation": (IMAGE, images(excited, d=conv(6, 2, 1), u=conv(2, 6, 1))),
    "groups and holes": (
        IMAGE,
        chain(
            nn("Conv2d", 3, 6, 3, groups=3, dilation=2, padding=2), nn("Hardswish"),
            nn("Conv2d", 6, 6, 3, groups=2, stride=2, padding="valid"), nn("ELU", 0.7), nn("Flatten"), linear(54, 3),
        ),
    ),
    "ceil_mode": (
        IMAGE,
        chain(
            conv(3, 4), nn("MaxPool2d", 3, 2, ceil_mode=True), nn("AvgPool2d", 3, 2, ceil_mode=True),
            nn("AdaptiveAvgPool2d", (3, None)), nn("GroupNorm", 2, 4), nn("Hardtanh", -0.5, 0.7), nn("Flatten"),
            linear(24, 3),
        ),
    ),
    "ceil_mode with padding": (
        IMAGE,
        chain(
            conv(3, 4), nn("MaxPool2d", 3, 2, 1, ceil_mode=True),
            nn("AvgPool2d", 2, 2, 1, ceil_mode=True, count_include_pad=False), nn("Flatten"), linear(36, 3),
        ),
    ),
    "one pixel, then a convolution": (
        IMAGE,
        chain(conv(3, 4), nn("AdaptiveAvgPool2d", 1), nn("Conv2d", 4, 2, 1), nn("Flatten")),
    ),
    "sequences": (
        (9, 4),
        chain(
            nn("Conv1d", 4, 6, 3), nn("GELU", "tanh"), nn("MaxPool1d", 2, ceil_mode=True), nn("AdaptiveAvgPool1d", 3),
            nn("Flatten"), linear(18, 2),
        ),
    ),
}  # fmt: skip


def relu_into(m: Any, x: Any, t: Any) -> Any:
    h = m.a(x)
    t.relu_(h)
    return m.c(m.b(t.tanh(h)) + h)


def relu_inplace(m: Any, x: Any, t: Any) -> Any:
    h = m.a(x)
    return m.c(m.b(t.nn.functional.relu(h, inplace=True)) + h)


def into_a_view(m: Any, x: Any, t: Any) -> Any:
    h = m.a(x)
    h.view(-1, 8).add_(m.b(x))
    return m.c(h)


def depends_on_data(m: Any, x: Any, t: Any) -> Any:
    return m.c(m.a(x)) if x.sum() > 0 else m.c(m.b(x))


def densely(m: Any, x: Any, t: Any) -> Any:
    a = t.relu(m.a(x))
    return m.c(a + t.relu(m.b(a + x)) + x)


def crossing(m: Any, x: Any, t: Any) -> Any:
    a = m.a(x)
    return m.c((a + m.b(x)) * t.tanh(a))


def gamma(torch: Any) -> Any:
    return torch.nn.Parameter(torch.ones(8))


def wrapped(torch: Any) -> Any:
    """Return a module that calls a function named relu, which torch.fx records as a ReLU but which is x -> 3 x."""

    def relu(x: Any) -> Any:
        return 3 * x

    def forward(m: Any, x: Any, t: Any) -> Any:
        h = m.a(x)
        proxy = h.tracer.create_proxy("call_function", relu, (h,), {}) if isinstance(h, t.fx.Proxy) else relu(h)
        return m.c(m.b(proxy))

    return vectors(forward)(torch)


REFUSED: dict[str, tuple[tuple[int, ...], Make, str]] = {
    "in place, its result unused": (V, vectors(relu_into), "^take inplace=False"),
    "in place, read later": (V, vectors(relu_inplace), "^take inplace=False"),
    "in place of a view": (V, vectors(into_a_view), "^take inplace=False"),
    "depends on data": (V, vectors(depends_on_data), "^give spec=.* cannot trace, TraceError"),
    "densely connected": (V, vectors(densely), "'a' in branches that are not nested"),
    "crossing": (V, vectors(crossing), "'a' in branches that are not nested"),
    "called twice": (V, vectors(lambda m, x, t: m.c(m.a(t.relu(m.a(m.b(x)))))), "^untie it: 'a' is called twice"),
    "never called": (V, vectors(lambda m, x, t: m.c(t.relu(m.a(x)))), r"^delete the modules .* \['b'\]"),
    "detached": (V, vectors(lambda m, x, t: m.c(t.relu(m.b(x)) + m.a(x).detach())), "'detach', which lift does not"),
    "masks": (V, between(lambda h, t: t.nn.functional.dropout(h, 0.5)), "'dropout' with p=0.5, training=True"),
    "another function's name": (V, wrapped, "'tests.kit.tricky_modules.relu'"),
    "plus 1": (V, between(lambda h, t: h + 1), "'add' with 1"),
    "1 over": (V, between(lambda h, t: 1 / (10 + h)), "'truediv' with 1"),
    "by the size of the batch": (V, between(lambda h, t: h * h.shape[0]), "'mul'"),
    "mean of the batch": (V, between(lambda h, t: h - h.mean(0)), "'mean' with 0"),
    "softmax": (V, between(lambda h, t: t.softmax(h, 1)), "'softmax' with 1"),
    "where": (V, between(lambda h, t: t.where(h > 0, h, 0.1 * h)), "'where'"),
    "clamp": (V, between(lambda h, t: h.clamp(0, 6)), "'clamp' with 0, 6"),
    "alpha": (V, vectors(lambda m, x, t: m.c(t.add(x, m.b(m.a(x)), alpha=0.1))), "'add' with alpha=0.1"),
    "random": (V, between(lambda h, t: h + t.ones(8)), "reads the array"),
    "broadcast": (
        V,
        vectors(lambda m, x, t: m.c(m.a(x) + m.b(x)), b=linear(8, 1)),
        r"'add' of shapes \(2, 1\), \(2, 8\)",
    ),
    "a parameter by itself": (V, vectors(lambda m, x, t: m.c(m.g * m.b(m.a(x))), g=gamma), "reads the array 'g'"),
    "joined along the batch": (V, vectors(lambda m, x, t: m.c(t.cat([m.a(x), m.b(x)], 0))), r"along \[0\]"),
    "joined along the height": (
        IMAGE,
        images(lambda m, h, t: m.fc(t.cat([h, t.relu(h)], 2).flatten(1)), 768),
        r"along \[2\]",
    ),
    "transposed": (IMAGE, images(lambda m, h, t: m.fc(t.flatten(h.transpose(2, 3), 1))), "'transpose' with 2, 3"),
    "attention by hand": ((5, 8), vectors(attends), "^take torch.func.*attends to other positions"),
    "attention by torch's function": (
        (5, 8),
        vectors(lambda m, x, t: m.c(t.nn.functional.scaled_dot_product_attention(m.a(x), m.b(x), x).mean(1))),
        "^take torch.func.*attends to other positions",
    ),
    "channels last": (IMAGE, images(lambda m, h, t: m.fc(h.permute(0, 2, 3, 1).flatten(1))), "'permute'"),
    "mean of the channels": (IMAGE, images(lambda m, h, t: m.fc(h.mean(1).flatten(1)), 64), "'mean' with 1"),
    "several outputs": (V, vectors(lambda m, x, t: (m.c(m.a(x)), m.b(x))), "several inputs or outputs"),
    "a dictionary": (V, vectors(lambda m, x, t: {"y": m.c(m.b(m.a(x)))}), "several inputs or outputs"),
    "another forward of Linear": (V, overridden_linear, "Lin at '0' reads the array 'weight' itself"),
    "another shape": ((5, 8), vectors(lambda m, x, t: m.c(m.b(m.a(x)))), r"^mend input_shape=\(5, 8\), channels last"),
    "channels first": (
        (3, 8, 8),
        images(lambda m, h, t: m.fc(t.flatten(h, 1))),
        r"^mend input_shape=\(3, 8, 8\), channels last, that of np.moveaxis\(x, 1, -1\) for torch's x",
    ),
    "a recurrent layer": (V, chain(nn("LSTM", 8, 8)), "^take torch.func.*LSTM at '0' is recurrent"),
}  # fmt: skip
