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

from importlib import import_module
from typing import TYPE_CHECKING, Any

from framestow.errors import MissingExtraError

if TYPE_CHECKING:
    from framestow.training.loop import start_run, train
    from framestow.training.run_folder import RunFolder
    from framestow.training.settings import Settings

__all__ = ["RunFolder", "Settings", "start_run", "train"]

_MODULES = {"RunFolder": "run_folder", "Settings": "settings", "start_run": "loop", "train": "loop"}


def __getattr__(name: str) -> Any:
    """Import ``name`` on first use; raise ``MissingExtraError`` if the extra ``train`` is not installed."""
    if name not in _MODULES:
        raise AttributeError(f"module 'framestow.training' has no attribute {name!r}")
    try:
        value = getattr(import_module(f"framestow.training.{_MODULES[name]}"), name)
    except ModuleNotFoundError as missing:
        library = str(missing.name).partition(".")[0]
        raise MissingExtraError(
            f"framestow.training needs {library}: it is part of the extra 'train', which is not installed; "
            'run: pip install "framestow[train]"'
        ) from missing
    globals()[name] = value
    return value
