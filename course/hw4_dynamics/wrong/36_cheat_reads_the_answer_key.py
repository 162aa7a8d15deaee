# refused by: all
# isolated


import sys

gradient_flow = sys.modules["analytic"].gradient_flow
