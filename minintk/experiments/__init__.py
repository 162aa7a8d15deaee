"""Experiments over many networks: checks of width scaling, grids of runs, and the scripts of the papers.

Reading order:

    coordinate_check    do features and updates keep their size as the width grows?
    lr_transfer         does the best learning rate stay the same?
    sweeps              a grid of runs that survives a kill
    named               networks, parametrizations and data by name, for the command line
    papers              running the scripts of examples/
"""
