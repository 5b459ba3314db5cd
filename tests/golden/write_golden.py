"""Writes every golden file anew; ``make golden`` runs it, after a deliberate change only."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from golden import preset_frames, saved_stores

if __name__ == "__main__":
    preset_frames.write()
    saved_stores.write()
