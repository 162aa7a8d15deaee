# refused by: all
# isolated


from minintk import SpectralMuP
