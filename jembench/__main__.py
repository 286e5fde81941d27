"""The command line as ``python -m jembench``."""

import sys

from jembench.cli.main import main

sys.exit(main())
