# refused by: all
# isolated


from minintk import Conv2d
