# refused by: gradients in parts


_whole = gradients_in_parts


def gradients_in_parts(x, labels, params, size):
    many = max(len(x) // size, 1) * size
    return _whole(x[:many], labels[:many], params, size)
