# refused by: z-test, experiment


def z_test(samples, theory, level):
    z = (samples.mean(axis=0) - theory) / samples.std(axis=0, ddof=1)
    return z, bool(np.min(erfc(np.abs(z) / np.sqrt(2))) * z.size >= level)
