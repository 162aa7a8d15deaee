"""Redraw the figures of the notes, and print the measured values that the notes quote.

    python3 make.py python docs/notes/figures [CHAPTER ...]

CHAPTER is one of chain_rule, gaussians, kernel_stays, closed_form, one_knob, why_mup.  By default, all six are redrawn.
"""

import sys
from importlib import import_module

CHAPTERS = ("chain_rule", "gaussians", "kernel_stays", "closed_form", "one_knob", "why_mup")

for name in sys.argv[1:] or CHAPTERS:
    print(f"[{name}]")
    import_module(name).main()
