"""Run experiments on many networks: checks of width scaling, grids of runs, and the scripts of the papers.

Reading order:

    layer_sizes         the sizes of features and weights in networks of several widths or depths
    coordinate_check    do they stay the same as the width or the depth grows?
    lr_transfer         does the best learning rate stay the same?
    sweeps              a grid of runs that survives a kill
    costs               the remaining time of a sweep
    named               networks, parametrizations and data by name, for the command line
    papers              runs the scripts of examples/
"""
