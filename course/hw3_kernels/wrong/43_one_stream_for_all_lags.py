# refused by: measurement


def roughness(x, lags, draws, seed, w_std, b_std):
    found = []
    for kernel in kernels(x, x, 1, w_std, b_std):
        f = draw_functions(kernel, draws, seed)
        found.append([np.sqrt(np.mean((np.roll(f, -lag, axis=0) - f) ** 2, axis=0)) for lag in lags])
    return np.array(found)
