"""Grade submissions: check plain functions, run a submission in its own process, and score it with reasons.

Reading order:

    suspects      named mistakes: a factor, a transpose, a shift, a flip, a missing part
    compare       a result against the right one, and the findings of a check
    gradient      a backward function and differences of its forward function
    checks        jvp, vjp and gram of a layer of this library, one by one
    slope         exponents from a sequential test, which adds seeds until the answer is certain
    exercise      cases, exercises, assignments, inputs that break naive code, variants drawn from a secret seed
    worker        the student's process, which calls functions and holds no answers
    submission    the grader's side of that process, or the same without a process
    run           one submission's grade, as JUnit XML, Gradescope's results.json and a page
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
