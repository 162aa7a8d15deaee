"""Compare real networks of growing width with infinite-width theory and return a verdict, as `minintk verify` does.

    from analytic import verify
    result = verify.run(widths=(32, 64, 128, 256), activations=["erf"])
    result.verdict                                  # "pass", "fail" or "undecided"
    verify.write(result, "minintk-verify")          # figures, report.html, results.json

Reading order:

    problem       the data and the networks' specs
    networks      training of networks of one width, and their distance from the theory
    scores        z-scores of an ensemble against the Gaussian process
    claims        the claims about exponents in the width, the rows of results, and the verdicts
    experiment    the whole experiment: `run`
    figures       the figures
    report        results.json and report.html: `write`

`draws`, `sequential` and `draw_report` implement `minintk verify --draw`.  Two modules implement `verify --mup`:

    mup           rates, laziness, features, depth, weight decay, transfer, Muon and sharpness
    laws          the hierarchy of tangent kernels, finite-width means, the limit; `laws.run` runs all laws
"""

from analytic.verify.experiment import Result, run
from analytic.verify.report import write

__all__ = ["Result", "run", "write"]
