"""Each number of a memory is a row, which every home shows; none that a training shows reads steps."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

import framestow._core as core
from framestow.replay.ensemble import ReplayEnsemble
from framestow.replay.memory import ReplayMemory
from framestow.replay.reports.facts import OF_A_MEMORY, shown_in
from framestow.replay.reports.inspection import OF_A_LABEL, OF_A_STORE, Inspection, LabelInspection, inspect_memory
from framestow.replay.reports.memory_report import MemoryReport, sum_of_reports
from framestow.training.listeners import PROGRESS_COLUMNS, ProgressTable, memory_numbers
from oracles.numbered_steps import numbered_memory, play_episode

ROWS = [*OF_A_MEMORY, *OF_A_LABEL, *OF_A_STORE]
REPO = Path(__file__).parents[2]


def names_of(kind: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]


def test_every_field_of_a_report_is_a_row_and_every_row_is_a_field():
    reported = [name for name, _ in shown_in("report", OF_A_MEMORY)]

    assert sorted(names_of(MemoryReport)) == sorted(reported)
    assert reported == [fact.key for _, fact in shown_in("report", OF_A_MEMORY)]
    assert ["label", *(fact.key for fact in OF_A_LABEL)] == names_of(LabelInspection)
    for kind, fact in [
        *((MemoryReport, fact) for fact in OF_A_MEMORY if "report" not in fact.homes),
        *((Inspection, fact) for _, fact in shown_in("inspect", OF_A_MEMORY, OF_A_STORE)),
    ]:
        assert isinstance(getattr(kind, fact.key), property), fact.key


def test_a_name_in_a_home_is_that_of_one_row_and_every_row_has_words():
    for home in ("report", "inspect", "view", "progress", "curves", "chart"):
        names = [name for name, _ in shown_in(home, OF_A_MEMORY, OF_A_STORE)]
        assert len(set(names)) == len(names), home
    assert all(fact.words for fact in ROWS)


def test_every_number_of_several_memories_together_says_how_its_members_combine():
    assert [] == [fact.key for _, fact in shown_in("report", OF_A_MEMORY) if fact.combine is None]


def test_every_column_of_the_progress_table_stands_in_its_docstring_and_on_the_page_of_training():
    page = (REPO / "docs/training.md").read_text()

    assert [] == [name for name in PROGRESS_COLUMNS if name not in str(ProgressTable.__doc__)]
    assert [] == [name for name in PROGRESS_COLUMNS if f"`{name}`" not in page]


def test_the_report_of_several_memories_counts_the_observations_of_all():
    members = [numbered_memory(1000, num_envs=2), numbered_memory(1000, num_envs=2)]
    play_episode(members[0], 0, 5)
    play_episode(members[1], 0, 50)

    together = ReplayEnsemble(members, [0.5, 0.5]).report()

    each = [member.report().observations for member in members]
    assert [6, 51] == [report.observations for report in each]
    assert (57, each[0].stacks) == (together.observations.observations, together.observations.stacks)
    assert sum_of_reports([member.report() for member in members], 2000) == together


def test_a_printed_report_has_a_line_of_every_number_that_asks_for_one():
    report = MemoryReport(10, 100, {"steps": 120}, 1, 2, max_bytes=2**20, skipped_segments=2, skipped_transitions=1_280)

    assert [
        "2 damaged segments were skipped",
        "1,280 transitions are lost with damaged segments and blocks of steps",
        "budget 1.0 MiB",
    ] == str(report).splitlines()[-3:]


def test_the_json_of_inspect_has_every_row(tmp_path):
    memory = numbered_memory(1000)
    play_episode(memory, 0, 5)
    memory.save(tmp_path / "memory")

    inspection = inspect_memory(tmp_path / "memory")

    content = inspection.to_dict()
    rows = list(shown_in("inspect", OF_A_MEMORY, OF_A_STORE))
    assert {name: getattr(inspection, fact.key) for name, fact in rows} == {name: content[name] for name, _ in rows}
    assert 5 == content["transitions"] == memory.report().transitions
    assert {fact.key for fact in OF_A_LABEL} | {"label"} == content["labels"][0].keys()


# The native calls that a report makes, each in microseconds, however many steps and frames the memory has. A call that
# reads them all would hold the lock for 43 ms at a million steps, each time that a training writes a line. So before a
# name joins this list, look at its C++: it must read counters only.
QUICK_CALLS = {
    "steps": {"__len__", "nbytes"},
    "frames": {
        *("sealed_nbytes", "open_nbytes", "index_nbytes", "disk_nbytes", "num_frames_of", "num_whole_of"),
        *("frames_per_segment", "next_position"),
    },
    "core": {"nbytes", "charged_bytes"},
}


class CallsOfCore:
    """A native core that records what Python code asks it for."""

    def __init__(self, core: Any, asked: set[str]) -> None:
        self._core, self._asked = core, asked

    def __getattr__(self, name: str) -> Any:
        self._asked.add(name)
        return getattr(self._core, name)


def recording(kind: type, asked: set[str]) -> type:
    """Return ``kind``, which records what Python code asks its objects for of native code."""
    native = {name for base in kind.__mro__ if base.__module__.startswith(core.__name__) for name in vars(base)}

    class Recorded(kind):  # type: ignore[misc, valid-type]
        __slots__ = ()

        def __getattribute__(self, name: str) -> Any:
            if name in native:
                asked.add(name)
            return super().__getattribute__(name)

        def __len__(self) -> int:
            asked.add("__len__")
            return super().__len__()

    return Recorded


def record_calls(memory: ReplayMemory) -> dict[str, set[str]]:
    """Return what is asked of the memory's native parts from now on, by part."""
    inner, asked = memory.inner, {name: set[str]() for name in QUICK_CALLS}
    inner.steps.__class__ = recording(type(inner.steps), asked["steps"])
    inner.frames.__class__ = recording(type(inner.frames), asked["frames"])
    inner.core = inner.parts.core = CallsOfCore(inner.core, asked["core"])
    return asked


@pytest.mark.parametrize("retention", ["fifo", "random"])
def test_a_report_and_a_line_of_progress_call_nothing_native_that_reads_steps_or_frames(retention, tmp_path):
    memory = numbered_memory(2000, num_envs=2, retention=retention, max_bytes="4 MiB", directory=tmp_path)
    play_episode(memory, 0, 50)
    asked = record_calls(memory)

    memory.report(), repr(memory), memory_numbers("progress", memory), memory_numbers("curves", memory)

    assert QUICK_CALLS == asked
