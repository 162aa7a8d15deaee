# refused by: conv, conv with stride and padding, conv backward, conv backward with stride and padding, measurement


KERNEL = "convolution" if KERNEL == "correlation" else "correlation"
