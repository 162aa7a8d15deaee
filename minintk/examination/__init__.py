"""Examine a network: report the regime in which it trains, with intervals, and what to do.

`examine` is `mn.examine`; `command` is `minintk examine`.  `runs` trains a network next to its linearisation, `signals`
examines the layers at the start, and `widths` trains at other widths.  `judge` computes intervals and the verdict,
`wrong` the findings.  `report` and `figures` present the results.
"""
