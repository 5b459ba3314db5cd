"""Each argument of a loader or a random shift is refused by name, value and rule, before a batch is drawn."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from framestow import FrameSpec, ReplayMemory
from framestow.torch import BatchLoader, RandomShift, SequenceLoader, TransitionDataset, scale_pixels, to_tensors
from oracles.wrong_values import Call, Made, assert_wrong_values_are_refused, each_argument


def filled():
    memory = ReplayMemory(20, FrameSpec((2, 2)), 4, stack=2, seed=0)
    memory.begin(np.zeros((1, 2, 2), np.uint8))
    for _ in range(5):
        memory.append([1], [0.5], [False], [False], np.zeros((1, 2, 2), np.uint8))
    return memory


def saved():
    filled().save("saved")
    return "saved"


def closed(make, **arguments):
    make(**{"memory": filled(), **arguments}).close()


PIXELS = torch.zeros((2, 3, 16, 12), dtype=torch.uint8)
LOADER = {"memory": None, "batch_size": 4, "device": "cpu", "ahead": 2, "threads": 1, "pin_memory": True}
SEQUENCES = {"length": 3, "overlap": 1, "burn_in": 0, "borders": "mask"}
UNUSABLE = {"device": ["gpu", "cuda:99", torch.device("cuda:99")]}


def with_memory(make):
    return lambda **given: closed(make, **{name: value for name, value in given.items() if name != "memory"})


CALLS = {
    "BatchLoader": Call(with_memory(BatchLoader), LOADER, {"pin_memory": "True"}, UNUSABLE, unchecked="memory"),
    "BatchLoader of no memory": Call(
        lambda **given: closed(BatchLoader, batch_size=4, **given), {"memory": Made(filled)}
    ),
    "SequenceLoader": Call(
        with_memory(SequenceLoader),
        LOADER | SEQUENCES,
        {"overlap": "0 None", "burn_in": "0", "pin_memory": "True"},
        UNUSABLE | {"overlap": [3], "burn_in": [3]},
        unchecked="memory",
    ),
    "SequenceLoader of no memory": Call(
        lambda **given: closed(SequenceLoader, batch_size=4, length=2, **given), {"memory": Made(filled)}
    ),
    "TransitionDataset": Call(
        TransitionDataset,
        {"store": Made(saved), "batch_size": 4, "seed": 0, "each_once": False},
        {"seed": "0 None", "each_once": "True"},
        skips={"store": "'a'"},
    ),
    "TransitionDataset.set_epoch": Call(
        lambda **given: TransitionDataset(saved(), 4).set_epoch(**given), {"epoch": 0}, {"epoch": "0"}
    ),
    "to_tensors": Call(to_tensors, {"batch": Made(lambda: filled().sample(2)), "device": "cpu"}, refuses=UNUSABLE),
    "scale_pixels": Call(
        scale_pixels, {"pixels": PIXELS, "dtype": torch.float32}, refuses={"dtype": [torch.int64, np.float32]}
    ),
    "RandomShift": Call(
        RandomShift,
        {"pad": 4, "generator": None, "channels_last": False},
        {"pad": "0", "generator": "None", "channels_last": "True"},
    ),
    "RandomShift(pixels)": Call(RandomShift(), {"pixels": PIXELS}, refuses={"pixels": [torch.tensor(0)]}),
}


@pytest.mark.parametrize(("call", "name"), each_argument(CALLS))
def test_a_wrong_argument_is_refused_with_its_value(call, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert_wrong_values_are_refused(call, name)
