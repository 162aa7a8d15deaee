"""python -m minintk: the command line."""

import sys

from minintk.cli import main

sys.exit(main())
