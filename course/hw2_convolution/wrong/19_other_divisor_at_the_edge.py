# refused by: average pool, average pool backward


AVERAGE = "inside" if AVERAGE == "window" else "window"
