"""Grade submissions: check plain functions, run a submission in its own process, and report its score with reasons.

Reading order:

    suspects      recognise mistakes: a factor, a transpose, a shift, a flip, a missing part
    compare       compare a result with the right one; define the findings of a check
    gradient      compare a backward function with finite differences of its forward function
    checks        check jvp, vjp and gram of a layer of this library, one by one
    slope         determine exponents by a sequential test, which adds seeds until the answer is certain
    exercise      define cases, exercises and assignments, inputs that break naive code, and secret variants
    worker        run the student's process, which calls functions and contains no answers
    submission    call a submission in that process, or without a process
    run           grade one submission, and write JUnit XML, Gradescope's results.json and a page
"""

from minintk.diagnostics.power_laws import Verdict
from minintk.grade.checks import diagnose_layer
from minintk.grade.compare import Diagnosis, Finding, compare
from minintk.grade.exercise import Assignment, Exercise, Gradient, Law, Values, hard_inputs, load, record
from minintk.grade.gradient import check_gradient
from minintk.grade.run import Grade, Graded, grade
from minintk.grade.slope import exponent, slope_interval, with_experiment
from minintk.grade.submission import Submission, SubmissionError

__all__ = [
    "Assignment", "Diagnosis", "Exercise", "Finding", "Grade", "Graded", "Gradient", "Law", "Submission",
    "SubmissionError", "Values", "Verdict", "check_gradient", "compare", "diagnose_layer", "exponent", "grade",
    "hard_inputs", "load", "record", "slope_interval", "with_experiment",
]  # fmt: skip
