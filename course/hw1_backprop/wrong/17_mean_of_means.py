# refused by: gradients in parts
# variant: loss = mean


def gradients_in_parts(x, labels, params, size):
    parts = [gradients(x[i : i + size], labels[i : i + size], params) for i in range(0, len(x), size)]
    return sum(p[0] for p in parts) / len(parts), [sum(g) / len(parts) for g in zip(*(p[1] for p in parts))]
