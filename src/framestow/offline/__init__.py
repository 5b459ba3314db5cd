"""Import datasets of other libraries into a memory, and export a memory as a Minari dataset.

Minari needs the extra ``framestow[offline]``. docs/libraries/logged-data.md has examples.

======================  ===========================================================================
``MinariData``          a Minari dataset: ``MinariData.open(folder).import_into(memory)``
``export_minari``       writes a memory's episodes as a Minari dataset
``MinariDescription``   id and metadata of a dataset written by ``export_minari``
``DqnReplay``           the DQN Replay Dataset: ``DqnReplay.open(folder).import_into(memory)``
``Transferred``         result of an import or export: counts, skipped steps and notes
======================  ===========================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from framestow.interface import lazy_names

if TYPE_CHECKING:
    from framestow.offline.dqn_replay import DqnReplay
    from framestow.offline.minari import MinariData, MinariDescription, export_minari
    from framestow.offline.transfer import Transferred

__all__ = ["DqnReplay", "MinariData", "MinariDescription", "Transferred", "export_minari"]

_MODULES = {
    "DqnReplay": "dqn_replay",
    "MinariData": "minari",
    "MinariDescription": "minari",
    "Transferred": "transfer",
    "export_minari": "minari",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
