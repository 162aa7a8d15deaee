# refused by: experiment
# isolated


def experiment(x, width, seeds, w_std, b_std, level):
    while True:
        pass
