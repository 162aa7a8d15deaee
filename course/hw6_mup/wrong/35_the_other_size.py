# refused by: sizes, coordinate check, measurement


SIZE = "abs" if SIZE == "rms" else "rms"
