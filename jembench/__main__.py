"""``python -m jembench``: the command line."""

import sys

from jembench.cli.main import main

sys.exit(main())
