# refused by: average pool


AVERAGE = "inside" if AVERAGE == "window" else "window"
