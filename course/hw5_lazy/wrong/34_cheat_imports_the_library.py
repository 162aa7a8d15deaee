# refused by: all
# isolated


import minintk as mn
