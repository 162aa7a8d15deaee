"""Compare minintk's coordinate check with that of Microsoft's `mup` on the same network, data and training steps.

    python benchmarks/coordinate.py [--widths 64,128,...] [--seeds 8]

The network has three hidden tanh layers without biases. We train it for three steps of gradient descent on the squared
error of 64 digits, in muP and in the standard parametrization. The PyTorch side uses the coordinate check, `MuSGD` and
`MuReadout` of `mup` with base width 64. Hooks record each layer's output before every step and after the last step. We
compute the root mean squares of a layer's last output and of its difference from the layer's first output. Both
libraries' exponents are fitted in the same way. Each is listed with half the width of its 95 % interval over seeds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
BASE, STEPS, OUTPUTS, LR = 64, 3, 10, {"muP": 0.1, "standard": 0.01}
Sizes = dict[str, list[list[float]]]


def peer(x: Any, labels: Any, widths: list[int], seeds: int, kind: str) -> Sizes:
    """Return {"h 1": sizes, "dh 1": ...} for layers 1 ... 4, measured with `mup`. Sizes are lists [width][seed]."""
    import mup
    import torch
    from mup.coord_check import _get_coord_data

    phi = torch.nn.Tanh()

    def bare(n: int) -> Any:
        linear, end = torch.nn.Linear, mup.MuReadout if kind == "muP" else torch.nn.Linear
        hidden = [layer for i in range(3) for layer in (linear(n if i else BASE, n, bias=False), phi)]
        return torch.nn.Sequential(*hidden, end(n, OUTPUTS, bias=False))

    def model(n: int) -> Any:
        net = bare(n)
        if kind == "muP":
            mup.set_base_shapes(net, bare(BASE), delta=bare(2 * BASE))
        for i, layer in enumerate(net[::2]):
            scale = OUTPUTS**-0.5 if i == 3 else 1.0
            if kind == "muP":  # `mup` expects the std at the base width and rescales it
                mup.init.normal_(layer.weight, std=scale * BASE**-0.5)
            else:
                torch.nn.init.normal_(layer.weight, std=scale * layer.in_features**-0.5)
        return net

    def optimizer(net: Any) -> Any:
        lr = LR[kind] * OUTPUTS / 2  # mup averages the loss over outputs; we halve the sum
        return mup.MuSGD(net.parameters(), lr=lr) if kind == "muP" else torch.optim.SGD(net.parameters(), lr=lr)

    seen: list[Any] = []

    def remember(h: Any) -> Any:
        seen.append(h.detach().clone())
        return h.square().mean().sqrt()

    batch = [(torch.tensor(x), torch.tensor(labels))]
    _get_coord_data(
        {n: (lambda n=n: model(n)) for n in widths}, batch, optimizer, nsteps=STEPS + 1, lossfn="mse", nseeds=seeds,
        cuda=False, show_progress=False, output_fdict={"l2": remember},
        filter_module_by_name=lambda name: name in ("0", "2", "4", "6"),
    )  # fmt: skip
    found: Sizes = {f"{q} {i}": [[] for _ in widths] for q in ("h", "dh") for i in range(1, 5)}
    one = 4 * (STEPS + 1)  # hook calls per network: four layers, before each step and after the last
    for run in range(seeds * len(widths)):
        outputs = seen[run * one : (run + 1) * one]
        for i in range(4):
            start, end = outputs[i], outputs[one - 4 + i]
            found[f"h {i + 1}"][run % len(widths)].append(float(end.square().mean().sqrt()))
            found[f"dh {i + 1}"][run % len(widths)].append(float((end - start).square().mean().sqrt()))
    return found


def ours(x: Any, y: Any, widths: list[int], seeds: int, kind: str) -> Any:
    """Return the result of minintk's coordinate check on the same network."""
    import minintk as mn

    def spec(n: int) -> mn.Sequential:
        hidden = [layer for _ in range(3) for layer in (mn.Dense(n), mn.Tanh())]
        return mn.Sequential(*hidden, mn.Dense(OUTPUTS, w_std=OUTPUTS**-0.5))

    parametrization = mn.SpectralMuP() if kind == "muP" else mn.Standard()
    told: dict[str, Any] = {"loss": mn.mse, "widths": widths, "seeds": seeds, "steps": STEPS}
    return mn.coordinate_check(spec, x, y, parametrization=parametrization, optimizer=mn.SGD(lr=LR[kind]), **told)


def ask(x: Any, labels: Any, widths: list[int], seeds: int, kind: str) -> tuple[Sizes, float]:
    """Run `peer` in the PyTorch environment; return the sizes that it measures and its time in seconds."""
    import environments

    environments.ensure("torch")
    python = environments.python("torch")
    if subprocess.run([python, "-c", "import mup.coord_check"], capture_output=True, check=False).returncode:
        install = ["-m", "pip", "install", "--quiet", "--no-deps", "-r", str(HERE / "requirements-mup.txt")]
        subprocess.run([python, *install], check=True)
    request = {"x": x.tolist(), "labels": labels.tolist(), "widths": widths, "seeds": seeds, "kind": kind}
    done = subprocess.run(
        [python, __file__, "--peer"], input=json.dumps(request), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"the peer's side failed: {done.stderr.strip().splitlines()[-1]}")
    reply = json.loads(done.stdout.splitlines()[-1])
    return reply["sizes"], reply["seconds"]


def serve() -> None:
    """Read the arguments of `peer` from stdin as JSON, and write its sizes and its time to stdout."""
    import numpy as np

    request = json.load(sys.stdin)
    x, labels = np.array(request.pop("x"), np.float32), np.array(request.pop("labels"))
    started = time.perf_counter()
    sizes = peer(x, labels, **request)
    print(json.dumps({"sizes": sizes, "seconds": time.perf_counter() - started}))


def main() -> None:
    """Run the coordinate check with both libraries and print a table of the exponents."""
    parser = argparse.ArgumentParser(description="the coordinate check beside Microsoft's mup")
    parser.add_argument("--widths", default="64,128,256,512,1024", metavar="N,N,...")
    parser.add_argument("--seeds", type=int, default=8, metavar="S")
    parser.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        serve()
        return
    sys.path[:0] = [str(HERE), str(HERE.parent)]
    import numpy as np

    import minintk as mn
    from minintk.diagnostics import power_law

    widths = [int(n) for n in options.widths.split(",")]
    data = mn.datasets.digits(dtype=np.float32).subset(64, np.random.default_rng(0))
    x, y = data.one_hot()
    print("| parametrization | layer | minintk, rms of h | mup, rms of h | minintk, rms of dh | mup, rms of dh |")
    print("| --- | --- | --- | --- | --- | --- |")
    notes = []
    for kind in LR:
        started = time.perf_counter()
        check = ours(x, y, widths, options.seeds, kind)
        seconds = time.perf_counter() - started
        sizes, theirs = ask(x, y.argmax(axis=1), widths, options.seeds, kind)
        for i in range(1, 5):
            cells = []
            for q in ("h", "dh"):
                fit = power_law(widths, [np.array(v) for v in sizes[f"{q} {i}"]])
                half = (fit.interval[1] - fit.interval[0]) / 2
                cells += [str(check["h" if q == "h" else "dh", str(2 * i - 2)]), f"{fit.exponent:+.2f} ± {half:.2f}"]
            print(f"| {kind} | {i} | {' | '.join(cells)} |")
        notes.append(f"{kind}: minintk {check.verdict} in {seconds:.1f} s, with all norms; mup in {theirs:.1f} s")
    print("", *notes, sep="\n")


if __name__ == "__main__":
    main()
