# refused by: all
# isolated


import sys

kernel = sys.modules["analytic"].kernel
