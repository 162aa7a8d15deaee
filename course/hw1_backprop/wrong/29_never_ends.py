# refused by: training
# isolated


def train(x, labels, params, lr, momentum, steps):
    while True:
        pass
