"""python -m minintk: the command line."""

import sys

from minintk.lab.cli import main

sys.exit(main())
