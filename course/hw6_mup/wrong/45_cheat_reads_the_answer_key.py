# refused by: all
# isolated


import sys

answers = sys.modules["minintk"]
