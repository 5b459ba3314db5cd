"""Each argument of an import or export is refused by name, value and rule, before anything is written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from framestow import ReplayMemory
from framestow.offline import (
    ArrayData,
    DqnReplay,
    MemoryData,
    MinariData,
    MinariDescription,
    export_arrays,
    export_minari,
)
from oracles.dopamine_memory import write_dopamine_log
from oracles.small_plays import SmallPlay
from oracles.wrong_values import Call, Made, assert_wrong_values_are_refused, each_argument

DESCRIPTION = {"dataset_id": "made/here-v0", "environment": None, "data_format": "hdf5", "metadata": {}}


def played():
    return SmallPlay(((3, "terminated"), (2, "terminated"))).recorded().memory


def exported(folder="logs"):
    if not os.path.exists(folder):
        write_dopamine_log(SmallPlay(((3, "terminated"), (2, "terminated"))).recorded(), Path(folder))
    return folder


def replay_of(**given):
    return DqnReplay.open(**{"folder": exported(), **given})


def described(**given):
    return export_minari(played(), f"out/{next(NUMBERS)}", MinariDescription(**given))


def dataset():
    if not os.path.exists("made"):
        export_minari(played(), "made", MinariDescription("made/here-v0"))
    return "made"


def saved():
    if not os.path.exists("saved"):
        played().save("saved")
    return "saved"


def arrays():
    if not os.path.exists("arrays.npz"):
        export_arrays(played(), "arrays.npz", "npz")
    return "arrays.npz"


def stacked(**given):
    return MinariData.open(dataset(), **given)


def show(done, total):
    """Stand for a progress bar."""


NUMBERS = iter(range(10**6))
NEW_FOLDER = Made(lambda: f"out/{next(NUMBERS)}")
CALLS = {
    "DqnReplay.open": Call(
        replay_of,
        {"checkpoints": [0], "padding": 3, "num_actions": 9},
        {"checkpoints": "0 None", "padding": "0 None", "num_actions": "None"},
        skips={"checkpoints": "[1]"},  # there is no such checkpoint
    ),
    "DqnReplay.open of a folder": Call(DqnReplay.open, {"folder": Made(exported)}),
    "DqnReplay.import_into": Call(
        lambda **given: replay_of().import_into(**given),
        {"memory": Made(lambda: ReplayMemory(20, played().inner.settings.frame, 9, stack=4)), "progress": show},
        skips={"progress": "class"},
    ),
    "MemoryData.open": Call(
        lambda **given: MemoryData.open(**{"path": saved(), **given}),
        {"generation": None, "skip_bad": False},
        {"generation": "None", "skip_bad": "True"},
        skips={"generation": "0"},  # there is no such generation
    ),
    "MemoryData.import_into": Call(
        lambda **given: MemoryData.open(saved()).import_into(**given),
        {
            "memory": Made(lambda: ReplayMemory(20, played().inner.settings.frame, 6, stack=4)),
            "progress": show,
            "offset": 0,
        },
        {"offset": "0"},
        skips={"progress": "class"},
    ),
    "ArrayData.open": Call(
        lambda **given: ArrayData.open(**{"path": arrays(), **given}),
        {"num_actions": 6, "layout": None, "keys": (), "filter_key": None, "skip_bad": False},
        {"num_actions": "None", "layout": "None", "filter_key": "None 'a'", "skip_bad": "True"},
    ),
    "export_minari": Call(
        export_minari,
        {
            "memory": Made(played),
            "folder": NEW_FOLDER,
            "description": MinariDescription("made/here-v0"),
            "progress": show,
        },
        refuses={"folder": [""]},
        skips={"folder": "'a'", "progress": "class"},
    ),
    "MinariDescription": Call(described, DESCRIPTION, {"environment": "None", "metadata": "dict"}),
    "MinariData.open": Call(
        stacked,
        {"stacked_on": "no", "stack_padding": None, "leave_out": (), "skip_bad": False},
        {"stack_padding": "None", "skip_bad": "True"},
    ),
    "MinariData.open of a dataset": Call(MinariData.open, {"dataset": Made(dataset)}),
    "MinariData.import_into": Call(
        lambda **given: MinariData.open(dataset()).import_into(**given),
        {"memory": Made(lambda: ReplayMemory(20, played().inner.settings.frame, 9, stack=4)), "progress": show},
        skips={"progress": "class"},
    ),
}


@pytest.mark.parametrize(("call", "name"), each_argument(CALLS))
def test_a_wrong_argument_is_refused_with_its_value(call, name, tmp_path, monkeypatch):
    if "Minari" in str(call.function):
        pytest.importorskip("minari", reason='Minari is not installed; run: pip install "framestow[offline]"')
    monkeypatch.chdir(tmp_path)

    assert_wrong_values_are_refused(call, name)
