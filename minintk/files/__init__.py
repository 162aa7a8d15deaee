"""Files that survive a kill and do no harm, and work that several processes share through a folder.

Reading order:

    writing    a file appears whole, or not at all; a full disk is an error in words
    reading    the one place where files are opened to be read: bounded memory, no classes, one kind of error
    pages      HTML from the templates inside the package
    locks      who computes what: a lock on a file, which ends with its process; and what is left, unit by unit

docs/long-runs.md is the rule of the last one.
"""
