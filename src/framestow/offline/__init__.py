"""Import datasets of other libraries into a memory, and export a memory for them.

Minari and HDF5 need the extra ``framestow[offline]``. docs/libraries/logged-data.md has examples.

==========================  =======================================================================
``MinariData``              a Minari dataset: ``MinariData.open(folder).import_into(memory)``
``export_minari``           writes a memory's episodes as a Minari dataset
``MinariDescription``       id and metadata of a dataset written by ``export_minari``
``DqnReplay``               the DQN Replay Dataset: ``DqnReplay.open(folder).import_into(memory)``
``ArrayData``               files of D4RL, d3rlpy, DrQ-v2, Dreamer, robomimic, or ``.npz``:
                            ``ArrayData.open(file).import_into(memory)``
``export_arrays``           writes a memory's episodes to such a file
``from_stable_baselines3``  a memory of a replay buffer of Stable-Baselines3
``MemoryData``              the steps of another memory: ``MemoryData.open(folder).import_into(memory)``
``Transferred``             result of an import or export: counts, skipped steps and notes
==========================  =======================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from framestow.interface import lazy_names

if TYPE_CHECKING:
    from framestow.offline.array_export import export_arrays
    from framestow.offline.arrays import ArrayData
    from framestow.offline.dqn_replay import DqnReplay
    from framestow.offline.memory_data import MemoryData
    from framestow.offline.minari import MinariData
    from framestow.offline.minari_export import MinariDescription, export_minari
    from framestow.offline.stable_baselines3 import from_stable_baselines3
    from framestow.offline.transfer import Transferred

__all__ = [
    "ArrayData",
    "DqnReplay",
    "MemoryData",
    "MinariData",
    "MinariDescription",
    "Transferred",
    "export_arrays",
    "export_minari",
    "from_stable_baselines3",
]

_MODULES = {
    "ArrayData": "arrays",
    "DqnReplay": "dqn_replay",
    "MemoryData": "memory_data",
    "MinariData": "minari",
    "MinariDescription": "minari_export",
    "Transferred": "transfer",
    "export_arrays": "array_export",
    "export_minari": "minari_export",
    "from_stable_baselines3": "stable_baselines3",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
