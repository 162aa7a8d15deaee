"""Examine a network: report its training regime and measurements with confidence intervals, and give advice.

`examine` is `mn.examine`, and `command` is `minintk examine`.  `runs` trains a network and its linearisation, `signals`
measures the layers at initialisation, and `widths` trains networks of other widths.  `judge` computes intervals and the
verdict, and `wrong` computes the findings.  `report` and `figures` present the results.
"""
