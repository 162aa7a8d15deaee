# refused by: sizes, coordinate check


SIZE = "abs" if SIZE == "rms" else "rms"
