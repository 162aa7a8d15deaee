"""Examination: report the regime in which a network trains, with intervals, and what to do.

`examine` is `mn.examine`; `command` is `minintk examine`.  `runs` trains a network beside its linearisation.  `signals`
looks at the layers at the start, `widths` at other widths.  `judge` computes intervals and the verdict, `wrong` the
findings.  `report` and `figures` show everything.
"""
