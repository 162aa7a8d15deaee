# refused by: all


LAYOUT = "NCHW" if LAYOUT == "NHWC" else "NHWC"
