# refused by: kernels, kernels on hard inputs, deep, experiment, measurement


def kernels(x1, x2, depth, w_std, b_std):
    d = x1.shape[1]
    K, Theta = dense(x1 @ x2.T / d, np.zeros((len(x1), len(x2))), w_std, b_std)
    q1, q2 = (dense((x**2).sum(axis=1) / d, 0.0, w_std, b_std)[0] for x in (x1, x2))
    for _ in range(depth):
        K, Theta = dense(dual(K, q1, q2)[0], Theta, w_std, b_std)
        q1, q2 = (dense(moments(q, q, q)[0], 0.0, w_std, b_std)[0] for q in (q1, q2))
    return K, Theta
