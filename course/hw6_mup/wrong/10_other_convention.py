# refused by: convention


right = table


def table():  # the same function, in a convention that no handout has
    found = right()
    for place, s in zip(PLACES, (0.5, 0.25, 1)):
        found = shifted(found, place, s)
    return found
