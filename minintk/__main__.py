"""Run the command line: python -m minintk."""

import sys

from minintk.lab.cli import main

sys.exit(main())
