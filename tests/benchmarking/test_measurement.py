"""Each system returns the stored play, or is left out with the reason."""

import json
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from framestow.benchmarking import measurement
from framestow.benchmarking.buffers import BatchArrays, LazyFramesBuffer
from framestow.benchmarking.libraries import FRAMESTOW_SYSTEMS, LIBRARIES, Library, choose_libraries
from framestow.benchmarking.measurement import GIB, BenchSettings, append_us_of_envs, measure
from framestow.errors import MissingExtraError
from framestow.storage.frame_storage import STORAGES
from oracles.numbered_play import numbered_play

PLAY = numbered_play()
LAZY_FRAMES = LIBRARIES["lazy-frames"]


@pytest.fixture(autouse=True)
def few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``measure`` append 64 times to 8 environments, not 2,048 times: each test would take a second longer."""
    monkeypatch.setattr(measurement, "append_us_of_envs", partial(append_us_of_envs, num_calls=64))


class Shuffling(LazyFramesBuffer):
    """Returns the right observations with another step's next observations."""

    def as_arrays(self, batch: Any) -> BatchArrays:
        right = super().as_arrays(batch)
        return right._replace(next_observations=right.next_observations[::-1])


class Failing(LazyFramesBuffer):
    """Stands for a library whose interface has changed."""

    def sample(self, batch_size: int) -> Any:
        raise TypeError("sample() takes no argument\nand more")


def _settings(**changed: Any) -> BenchSettings:
    values = {
        "transitions": 600,
        "batch_size": 8,
        "stack": 3,
        "threads": 1,
        "rounds": 2,
        "max_bytes": GIB // 10,
        "fill_seconds": 9.0,
    }
    return BenchSettings(**(values | {"seed": 0} | changed))


def _measured(*libraries: Library, **changed: Any) -> Any:
    return measure(PLAY, "machado2018", _settings(**changed), libraries, lambda *_: None)


def _library(name: str, kind: type[LazyFramesBuffer]) -> Library:
    [system] = LAZY_FRAMES.systems
    return Library("stand-in", (), "", (replace(system, name=name, build=lambda task: kind(task.seed)),))


def test_all_storages_of_framestow_are_measured_with_the_bare_copy():
    figures = _measured()

    assert [f"framestow, {storage}" for storage in STORAGES] == [system.name for system in figures.systems]
    for system in (*figures.systems, figures.bare_copy):
        assert system.sample_us > 0
        assert system.bytes_per_transition > 0
    assert all(system.transitions == 600 and system.append_us > 0 for system in figures.systems)
    assert 30 == figures.bare_copy.bytes_per_transition
    assert 600 == figures.bare_copy.transitions
    assert figures.append_us_of_8_envs > 0


@pytest.mark.parametrize("library", LIBRARIES.values(), ids=LIBRARIES.keys())
def test_a_library_returns_the_stored_play(library: Library):
    if not library.is_installed:
        pytest.skip(f"{library.key} is not installed: {library.install_command}")

    figures = _measured(library)

    assert () == figures.left_out
    assert [system.name for system in (*FRAMESTOW_SYSTEMS, *library.systems)] == [
        system.name for system in figures.systems
    ]


def test_a_system_that_returns_wrong_observations_is_left_out_with_the_reason():
    figures = _measured(_library("shuffling", Shuffling), LAZY_FRAMES)

    [left_out] = figures.left_out
    assert "shuffling" == left_out.name
    assert "returned a wrong next observation" in left_out.reason
    assert "LazyFrames in a list" == figures.systems[-1].name


def test_a_system_that_fails_is_left_out_with_the_first_line_of_its_error():
    [left_out] = _measured(_library("failing", Failing)).left_out

    assert ("failing", "TypeError: sample() takes no argument") == (left_out.name, left_out.reason)


def test_a_library_stops_filling_when_its_time_is_up_and_framestow_does_not():
    figures = _measured(LAZY_FRAMES, fill_seconds=1e-9)

    assert [600, 600, 256] == [system.transitions for system in figures.systems]


def test_ratios_are_to_the_bare_copy_and_to_the_first_storage_of_framestow():
    figures = _measured(LAZY_FRAMES)

    plain = json.loads(json.dumps(figures.to_dict()))

    ours, lazy, bare = figures.systems[0], figures.systems[-1], figures.bare_copy
    assert 1 == plain["bare_copy"]["sample_of_bare_copy"] == plain["systems"][0]["sample_of_framestow"]
    last = plain["systems"][-1]
    assert "LazyFrames in a list" == last["name"]
    assert lazy.sample_us / bare.sample_us == last["sample_of_bare_copy"]
    assert lazy.sample_us / ours.sample_us == last["sample_of_framestow"]
    assert lazy.bytes_per_transition / ours.bytes_per_transition == last["bytes_of_framestow"]


def test_the_bare_copy_takes_no_more_than_a_third_of_the_bytes():
    assert 9_000 // 3 // 30 == _measured(max_bytes=9_000, transitions=10_000).bare_copy.transitions


def test_several_environments_append_different_parts_of_the_play():
    assert append_us_of_envs(PLAY, num_envs=5, stack=2, num_calls=64) > 0


def test_libraries_are_chosen_by_name_all_or_none():
    installed, missing = choose_libraries(["auto"])

    assert LAZY_FRAMES in installed
    assert list(LIBRARIES.values()) == sorted((*installed, *missing), key=list(LIBRARIES.values()).index)
    assert ([], []) == choose_libraries(["none"])
    assert ([LAZY_FRAMES], []) == choose_libraries(["lazy-frames", "lazy-frames"])


def test_a_named_library_that_is_not_installed_is_refused_with_its_install_command(
    monkeypatch: pytest.MonkeyPatch,
):
    absent = Library("absent", ("no_such_module",), "absent-library[fast]", ())
    monkeypatch.setitem(LIBRARIES, "absent", absent)

    with pytest.raises(
        MissingExtraError, match=r'library absent is not installed: .*; pip install "absent-library\[fast\]"'
    ):
        choose_libraries(["absent"])
    assert absent in choose_libraries(["auto"])[1]
