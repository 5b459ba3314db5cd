"""``python -m framestow.cli`` is the ``framestow`` command."""

import sys

from framestow.cli import main

sys.exit(main())
