# refused by: all
# isolated


from minintk import Network
