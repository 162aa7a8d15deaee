"""Estimate a lower bound on the time of image kernels on a GPU from the machine code of `analytic.fast.gpu_kernels`.

    python benchmarks/gpu_arithmetic.py                CIFAR-10 on one H200: 1.75e9 pairs, 14 layers, 32 x 32 pixels
    python benchmarks/gpu_arithmetic.py --layers 11 --pairs 5e5

The script needs CUDA's nvcc and nvdisasm on the PATH, but no GPU, because it runs no kernel. It counts the instructions
of each loop over a plane, including rare branches. For every offset between two images, it also counts how often a warp
of 32 threads executes each loop. Each of an H200's 132 multiprocessors issues at most four instructions per cycle and
accesses shared memory for one warp per cycle, at no more than 1.98 GHz. The bound ignores the time that threads spend
waiting for memory and at barriers.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from analytic.fast.gpu_kernels import source, threads_for

MULTIPROCESSORS, ISSUED, CLOCK = 132, 4, 1.98e9
REGISTERS, THREADS = 65536, 2048
"""The numbers of registers and threads of one multiprocessor."""


def disassembled(text: str) -> tuple[list[str], dict[str, int], int]:
    """Compile CUDA code; return the instructions, {label: index of the instruction} and the registers per thread."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "planes.cu"
        path.write_text(text)
        command = ["nvcc", "-arch=sm_90", "-cubin", "-Xptxas", "-v", "-o", f"{path}bin", str(path)]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stderr
        code = subprocess.run(["nvdisasm", "-c", f"{path}bin"], check=True, capture_output=True, text=True).stdout
    found, labels = list[str](), dict[str, int]()
    for line in code.splitlines():
        if label := re.match(r"(\.L_\w+):", line.strip()):
            labels[label[1]] = len(found)
        elif one := re.search(r"/\*[0-9a-f]{4,}\*/\s+(.*?);", line):
            found.append(one[1])
    used = re.search(r"Used (\d+) registers", said)
    assert used is not None
    return found, labels, int(used[1])


def loops(code: list[str], labels: dict[str, int]) -> list[Counter[str]]:
    """Return {instruction: count} for each innermost loop in the machine code."""
    jumps = [(k, re.search(r"\bBRA.*`\((\.L_\w+)\)", one)) for k, one in enumerate(code)]
    spans = [(labels[jump[1]], k) for k, jump in jumps if jump and labels.get(jump[1], k) < k]
    inner = [(a, b) for a, b in spans if not any((a, b) != (c, d) and a <= c and d <= b for c, d in spans)]
    return [
        Counter(re.sub(r"^@!?U?P\w+\s+", "", one).split(".")[0].split()[0] for one in code[a : b + 1]) for a, b in inner
    ]


def phases(dtype: str) -> tuple[dict[str, Counter[str]], int]:
    """Return {name: instruction counts} of a ReLU layer's loops for 3 x 3 windows, and the registers per thread."""
    text = source(dtype, (("kinked", 2, 5),), tangent=True).replace(
        "if (count == 3) return", "return"
    )  # removes the loops over other windows
    code, labels, registers = disassembled(text.replace("both = TANGENT &&", "both = TANGENT ||"))
    found = loops(code, labels)
    sums = [one for one in found if one["LDS"] == 6 and one["STS"] == 2]
    margins = [one for one in found if one["LDG"] == 2 and one["STS"] == 2 and not one["LDS"]]
    relu = [one for one in found if one["LDG"] == 2 and one["MUFU"] >= 2]
    assert len(sums) == 2, "the loops of the windows' sums are not those that are expected"
    assert len(relu) == 1, "the loop of ReLU is not the one that is expected"
    return {"across": sums[0], "along": sums[1], "ReLU": relu[0], "margins": max(margins, key=Counter.total)}, registers


def main() -> None:
    """Print the lower bound on the time in float32 and in float64."""
    parser = argparse.ArgumentParser(description="the least time of image kernels on an H200, by arithmetic")
    parser.add_argument("--pairs", type=float, default=1.75e9, help="pairs of images")
    parser.add_argument("--layers", type=int, default=14)
    parser.add_argument("--size", type=int, default=32, help="lines, and pixels in a line")
    options = parser.parse_args()
    n = options.size
    for dtype in ("float32", "float64"):
        loop, registers = phases(dtype)
        issued = shared = 0.0  # instructions of warps, for one pair of images and one layer
        for lines in (n - abs(dy) for dy in range(1 - n, n)):
            for width in (n - abs(dx) + 2 for dx in range(1 - n, n)):
                for name, one in loop.items():
                    rounds = -(-(2 if name == "margins" else lines) * width // 32)
                    issued += rounds * one.total()
                    shared += rounds * (one["LDS"] + one["STS"]) * (1 if dtype == "float32" else 2)
        entries = options.pairs * options.layers * n**4
        counts = ", ".join(f"{name} {one.total()}" for name, one in loop.items())
        print(f"{dtype}: {registers} registers; instructions of a loop: {counts}")
        print(f"  {32 * issued / n**4:.0f} instructions a pair of pixels and layer, margins and idle threads included")
        each = options.pairs * options.layers / MULTIPROCESSORS / CLOCK / 3600
        warps = min(THREADS, REGISTERS // registers) // 32
        print(f"  {threads_for(n * n)} threads a block at most, {warps} warps a multiprocessor by their registers")
        print(f"  {entries:.3g} entries: {issued / ISSUED * each:.1f} hours to issue them, "
              f"{shared * each:.1f} hours of shared memory")  # fmt: skip
        if dtype == "float64":
            wide = sum(one[name] for one in loop.values() for name in ("DFMA", "DADD", "DMUL", "DSETP"))
            print(f"  {wide} of them work in float64, two a cycle instead of four")


if __name__ == "__main__":
    main()
