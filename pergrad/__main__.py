"""Run the command line as `python -m pergrad`."""

import sys

# Python puts the current folder first, where a file called `harness.py` or `random.py` would hide ours: it goes last.
if not sys.flags.safe_path:
    sys.path.append(sys.path.pop(0))

from harness.cli.app import main

main()
