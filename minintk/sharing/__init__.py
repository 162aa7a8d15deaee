"""Work that several processes share through a folder; docs/long-runs.md is its rule.

Reading order:

    claims    who computes what: a file that only one process can create, and that dies with its owner
    units     what is left, unit by unit, until everything is finished
"""
