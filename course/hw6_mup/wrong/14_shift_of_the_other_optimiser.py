# refused by: shift


row = table()


def table():
    return dict(row)


def shifted(table, place, s):
    a, b, c = table[place]
    return {**table, place: (a + s, b - s, c - (s if OPTIMIZER == "sgd" else 2 * s))}
