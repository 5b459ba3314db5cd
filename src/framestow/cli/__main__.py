"""Run the ``framestow`` command as ``python -m framestow.cli``."""

import sys

from framestow.cli import main

sys.exit(main())
