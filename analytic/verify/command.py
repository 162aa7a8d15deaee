"""Define `minintk verify`, which compares networks with infinite-width theory; `minintk.lab.cli` loads this module."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from minintk.cores import cores
from minintk.lab.cli.options import DATA, DEVICE, FAILED, OK, SEED, UNDECIDED, command, names, option, whole_numbers
from minintk.lab.cli.terminal import coloured, console, print_table
from minintk.validate import whole

if TYPE_CHECKING:
    from analytic.verify import Result

STATUS = {"pass": OK, "fail": FAILED, "undecided": UNDECIDED}
"""Exit status for each verdict."""


@command(
    "verify",
    "real networks against infinite-width theory: figures, exponents, a verdict",
    "Train networks of growing width on real digits, by hand-written backprop, and compare them with "
    "the predictions of infinite-width theory. Exit status: 0 if the theory holds, 1 if it fails, 3 if undecided.",
    option("--widths", "N,N,...", "widths of the hidden layers (32,64,...,2048)", type=whole_numbers),
    option("--depth", "L", "hidden layers", 2),
    option("--activation", "NAME,...", "relu,erf; or tanh, gelu, ...", "relu,erf", type=names),
    DATA,
    option("--seeds", "S", "networks at each width (48, fewer where they cost more)", type=int),
    DEVICE,
    option("--draw", "N", "instead: the law of width on N random networks, and controls; 0: these alone", type=int),
    option("--mup", "LAW", "instead: the laws of networks whose features move, all or some, and controls", nargs="*"),
    option("--out", "DIR", "folder for the report", "minintk-verify"),
    SEED,
)
def _verify(args: Namespace) -> int:
    from analytic import verify
    from analytic.verify.experiment import WIDTHS
    from minintk.files.writing import check_folder

    check_folder(args.out)
    if args.draw is not None:
        return _verify_draws(args)
    if args.mup is not None:
        return _verify_mup(args)
    result = verify.run(
        widths=args.widths or WIDTHS, depth=args.depth, activations=args.activation, data=args.data,
        seeds=args.seeds, device=args.device, seed=args.seed, progress=True,
    )  # fmt: skip
    path = verify.write(result, args.out, command=args.command)
    print(f"depth {args.depth}, {len(result.problem.x)} images, {result.settings['steps']} steps; report: {path}")
    _show(result)
    return STATUS[result.verdict]


def _verify_draws(args: Namespace) -> int:
    """Test the law of scaling with the width on random networks.  The same command resumes interrupted work."""
    from analytic.verify import draw_report as report

    whole("draw", args.draw, 0)
    settings: Any = {"seed": whole("seed", args.seed, 0), "processes": cores(), "progress": True}
    law, controls = report.draws(args.draw, f"{args.out}/draws", **settings)
    report.draw_figure(law, controls, Path(args.out) / "draws.png")
    screen, columns = console(160), ("network", "exponent", "verdict", "rounds")
    for title, records in (("the law: sup |f - f_lin| falls as n^-1/2 or faster", law), ("controls", controls)):
        print_table(screen, title, columns, report.rows(records))
    columns = "exponent of", "theory", "smooth", "ReLU family"
    print_table(screen, "mean exponents over the draws", columns, report.by_class(law))
    verdict, text = report.summary(law, controls)
    screen.print(f"{coloured(verdict)}: {text} figure: {args.out}/draws.png")
    return STATUS[verdict]


def _verify_mup(args: Namespace) -> int:
    """Print each finding as soon as it is ready, and the verdict and the report's path at the end."""
    from analytic.verify import laws
    from analytic.verify.claims import overall

    screen, findings = console(160), []
    for found in laws.run(args.mup, seed=whole("seed", args.seed, 0)):
        law, expected, measured, said, seconds = laws.cells(found)
        screen.print(f"{coloured(found.verdict, said)}  {law}: {measured}; theory {expected} ({seconds} s)")
        findings.append(found)
    verdict, path = overall(found.verdict for found in findings), laws.write(findings, args.out, args.command)
    passed = sum(found.verdict == "pass" for found in findings)
    said = f"{passed} of {len(findings)} rows hold, controls included; {laws.LEVELS} report: {path}"
    screen.print(f"{coloured(verdict)}: {said}")
    return STATUS[verdict]


def _show(result: Result) -> None:
    """Print the tables of claims and z-scores, and the verdict."""
    from analytic.verify.claims import FAMILY_WISE_ERROR, LINEARISED_TOLERANCE, SUMMARY

    screen, heads = console(110), ("what", "theory b", "fitted b", "95 % interval", "verdict")
    for activation, study in result.studies.items():
        rows = [(row.claim.title, *row.cells, coloured(row.verdict)) for row in study.rows]
        print_table(screen, f"{activation}: error ~ n^b from n = {study.rows[0].fit.widths[0]:.0f} on", heads, rows)
        tests = [(test.title, *test.cells, coloured(test.verdict)) for test in study.tests]
        exact = "all", f"{study.linearised:.0e}", f"≤ {LINEARISED_TOLERANCE:.0e}", coloured(study.verdicts[-1])
        tests.append(("not a z: linearised network − its closed form, relative", *exact))
        who = f"{study.ensemble.f.shape[1]} trained networks of width {study.ensemble.width}"
        columns = "what", "t (steps)", "z", "wanted", "verdict"
        print_table(screen, f"{activation}: {who} against eqs. (14), (15) of Lee et al. 2019", columns, tests)
    passed, total = sum(verdict == "pass" for verdict in result.verdicts), len(result.verdicts)
    checks = f"{passed} of {total} checks pass, {result.seconds:.0f} s. False alarms: {FAMILY_WISE_ERROR:.0%} of runs."
    beyond = min(t.z - t.critical for study in result.studies.values() for t in study.tests if t.control)
    power = f"Power of the weakest control, at the z that it had: {NormalDist().cdf(beyond):.1%}."
    screen.print(f"{coloured(result.verdict)}: {SUMMARY[result.verdict]} {checks} {power}")
