# refused by: shift


row = table()
right = shifted


def table():
    return dict(row)


def shifted(table, place, s):
    for other in PLACES:
        table = right(table, other, s)
    return table
