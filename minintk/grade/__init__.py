"""Grading: plain functions checked, a submission run in a process of its own, scores with reasons.

Reading order:

    diagnosis     what a check found: which side, what it looks like
    suspects      the mistakes that are known by name: a factor, a transpose, a shift, a flip, a part missing
    compare       a result against the right one
    gradient      a backward function against differences of its forward function
    exercise      cases, exercises, assignments, and variants drawn from a secret seed
    worker        the student's process: calls functions, knows no answers
    submission    that process from outside, or the same without one
    run           a submission through an assignment
    reports       its grade as JUnit's XML, Gradescope's results.json, a page
"""

from minintk.grade.compare import compare
from minintk.grade.diagnosis import Diagnosis, Finding
from minintk.grade.exercise import Assignment, Exercise, Gradient, Law, Values, load
from minintk.grade.gradient import check_gradient
from minintk.grade.run import Grade, Graded, grade
from minintk.grade.submission import Submission, SubmissionError

__all__ = [
    "Assignment", "Diagnosis", "Exercise", "Finding", "Grade", "Graded", "Gradient", "Law", "Submission",
    "SubmissionError", "Values", "check_gradient", "compare", "grade", "load",
]  # fmt: skip
