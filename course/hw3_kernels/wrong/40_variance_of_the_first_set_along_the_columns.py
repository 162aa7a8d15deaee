# refused by: dual, kernels, dual on hard inputs, kernels on hard inputs, experiment


_right = dual


def dual(K, q1, q2):
    if K.shape[0] == K.shape[1]:
        found = [_right(K[:, [j]], np.full(len(K), q1[j]), q2[[j]]) for j in range(len(q1))]
        return tuple(np.concatenate(parts, axis=1) for parts in zip(*found))
    return _right(K, q1, q2)
