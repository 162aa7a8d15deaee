"""The rows of `minintk verify --mup`: what theory says, what was measured, the verdict; and controls.

An exponent passes if its whole interval, at the level CONFIDENCE, is within its tolerance of the theory's, fails if
none of it is, and is undecided else; a mean passes within CRITICAL_Z standard errors.  A control is a wrong scale or
theory, which the same measurement must refuse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from minintk.diagnostics.power_laws import power_law
from minintk.verify.claims import Array, Verdict, signed

CONFIDENCE, CRITICAL_Z = 0.99, 3.0


@dataclass(frozen=True)
class Finding:
    """One row: a law, what theory says, what was measured, the verdict.

    control : a wrong scale or theory; it passes if the measurement refuses it.  seconds : the row took.
    """

    law: str
    theory: str
    measured: str
    verdict: Verdict
    control: bool = False
    seconds: float = 0.0


def refused(found: Finding) -> Finding:
    """The finding as a control: it passes if it failed, and proves nothing otherwise."""
    return replace(found, control=True, verdict="pass" if found.verdict == "fail" else "undecided")


def exponent(law: str, expected: float, tolerance: float, widths: Sequence[int], values: Sequence[Array]) -> Finding:
    """The power of the width in values[i] : (S,) at widths[i], beside the expected one."""
    fit = power_law(widths, values, confidence=CONFIDENCE)
    low, high = (end - expected for end in fit.interval)
    verdict: Verdict = "pass" if max(-low, high) <= tolerance else "undecided"
    verdict = "fail" if low > tolerance or high < -tolerance else verdict
    measured = f"{signed(fit.exponent)} ± {(high - low) / 2:.2f}, n = {widths[0]} to {widths[-1]}"
    return Finding(law, f"{signed(expected, 1)} ± {tolerance:g}", measured, verdict)


def bounded(law: str, bound: float, value: float) -> Finding:
    """A number that may not exceed its bound."""
    return Finding(law, f"≤ {bound:g}", f"{value:.2g}", "pass" if value <= bound else "fail")


def score(law: str, expected: float, found: float, error: float) -> Finding:
    """A mean, its standard error, and how many of these it is from what is expected."""
    z = abs(found - expected) / error
    measured = f"{signed(found, 4)} ± {error:.4f}, z = {z:.1f}"
    return Finding(law, signed(expected, 4), measured, "pass" if z <= CRITICAL_Z else "fail")
