# refused by: all
# isolated


import importlib

mn = importlib.import_module("minintk")
