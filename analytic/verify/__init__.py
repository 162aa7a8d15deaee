"""`minintk verify` as a function: compare real networks of growing width with infinite-width theory, with a verdict.

    from analytic import verify
    result = verify.run(widths=(32, 64, 128, 256), activations=["erf"])
    result.verdict                                  # "pass", "fail" or "undecided"
    verify.write(result, "minintk-verify")          # figures, report.html, results.json

Reading order:

    problem       the data and the networks' specs
    networks      training and measuring networks of one width, and how far they are from the theory
    scores        z-scores of an ensemble against the Gaussian process
    claims        what is claimed about exponents in the width, rows of what was found, and the verdicts
    experiment    all of it: `run`
    figures       the figures
    report        results.json and report.html: `write`

and of `minintk verify --mup`, networks whose features move:

    mup           rates, features, depth, weight decay, transfer
    laws          the hierarchy of tangent kernels, the mean at finite width, the limit; and all laws: `laws.run`
"""

from analytic.verify.experiment import Result, run
from analytic.verify.report import write

__all__ = ["Result", "run", "write"]
