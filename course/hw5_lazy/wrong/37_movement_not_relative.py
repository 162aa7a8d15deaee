# refused by: measurement

solved = movement


def movement(x, y, widths, seeds, lr, steps, seed):
    starts = [[tangent_kernel(x, *draw(seed, n, s, x.shape[1])) for s in range(seeds)] for n in widths]
    return solved(x, y, widths, seeds, lr, steps, seed) * np.linalg.norm(starts, axis=(2, 3))
