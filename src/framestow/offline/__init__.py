"""Datasets in the formats of other libraries, read into memories and written from them.

Minari needs the extra ``framestow[offline]``. docs/libraries.md has examples.

======================  =====================================================================
``MinariData``          a Minari dataset: ``import_into(memory)``
``export_minari``       write a memory's episodes as a Minari dataset
``MinariDescription``   id and metadata of the dataset that ``export_minari`` writes
``DqnReplay``           the DQN Replay Dataset, of Dopamine's checkpoints: ``import_into(memory)``
``export_dqn_replay``   write a memory in that layout
``Transferred``         what an import or export returns: what was transferred, what was left out
======================  =====================================================================
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from framestow.offline.dqn_replay import DqnReplay, export_dqn_replay
    from framestow.offline.minari import MinariData, MinariDescription, export_minari
    from framestow.offline.transfer import Transferred

__all__ = ["DqnReplay", "MinariData", "MinariDescription", "Transferred", "export_dqn_replay", "export_minari"]

_MODULES = {
    "DqnReplay": "dqn_replay",
    "MinariData": "minari",
    "MinariDescription": "minari",
    "Transferred": "transfer",
    "export_dqn_replay": "dqn_replay",
    "export_minari": "minari",
}


def __getattr__(name: str) -> Any:
    """Import ``name`` when it is first asked for."""
    if name not in _MODULES:
        raise AttributeError(f"module 'framestow.offline' has no attribute {name!r}")
    value = getattr(import_module(f"framestow.offline.{_MODULES[name]}"), name)
    globals()[name] = value
    return value
