"""Train an agent: the loop, its listeners, checkpoints and the run folder.

Needs the extra ``framestow[train]``. docs/training.md has an example.

==============  ==============================================================
``Settings``    what to train on, with what memory, how, and how long
``RunFolder``   the folder of a run: settings, checkpoints, memory, logs
``start_run``   build a run, or resume it from its newest checkpoint
``train``       train a run to its last step, with listeners
==============  ==============================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from framestow.interface import lazy_names

if TYPE_CHECKING:
    from framestow.training.loop import start_run, train
    from framestow.training.run_folder import RunFolder
    from framestow.training.settings import Settings

__all__ = ["RunFolder", "Settings", "start_run", "train"]

_MODULES = {"RunFolder": "run_folder", "Settings": "settings", "start_run": "loop", "train": "loop"}

__getattr__, __dir__ = lazy_names(__name__, _MODULES, dict.fromkeys(_MODULES, "train"))
