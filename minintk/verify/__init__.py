"""`minintk verify` as a function: real networks of growing width against infinite-width theory, with a verdict.

    from minintk import verify
    result = verify.run(widths=(32, 64, 128, 256), activations=["erf"])
    result.verdict                                  # "pass", "fail" or "undecided"
    verify.write(result, "minintk-verify")          # figures, report.html, results.json

`problem` is what the networks train on, `networks` trains and measures them, `theory` predicts, `claims` and `scores`
judge, `figures` and `report` show.
"""

from minintk.verify.experiment import Result, run
from minintk.verify.report import write

__all__ = ["Result", "run", "write"]
