# refused by: conv, conv with stride and padding


KERNEL = "convolution" if KERNEL == "correlation" else "correlation"
