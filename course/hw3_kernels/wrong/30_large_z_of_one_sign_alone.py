# refused by: z-test


test = z_test


def z_test(samples, theory, level):
    z, _ = test(samples, theory, level)
    return z, bool(np.min(erfc(z / np.sqrt(2))) * z.size >= level)
