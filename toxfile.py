"""A plain `tox` runs as many environments at once as there are cores: that of Slurm and Ray waits
most of its time.
"""

import os
import sys

if len(sys.argv) == 1:
    os.environ.setdefault("TOX_PARALLEL", str(os.cpu_count()))
