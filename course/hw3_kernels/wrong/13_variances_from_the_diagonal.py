# refused by: kernels, deep


def kernels(x1, x2, depth, w_std, b_std):
    K, Theta = dense(x1 @ x2.T / x1.shape[1], np.zeros((len(x1), len(x2))), w_std, b_std)
    for _ in range(depth):
        T, T_dot = dual(K, np.diag(K), np.diag(K))
        K, Theta = dense(T, Theta * T_dot, w_std, b_std)
    return K, Theta
