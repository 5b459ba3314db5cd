"""Run the ``framestow`` command as ``python -m framestow``."""

import sys

from framestow.cli import main

if __name__ == "__main__":
    sys.exit(main())
