"""After any damage, the repaired store verifies, loads and equals the recording; otherwise nothing is changed."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from framestow.errors import DamagedDataError
from framestow.replay.memory import ReplayMemory
from framestow.replay.store.format import FolderContents
from framestow.replay.store.repair import repair_store
from framestow.replay.store.verify import verify_store
from oracles.damaged_stores import Kind, RecordedStore, contents, cut_off, damages_of, remove
from oracles.store_files import log_file

pytestmark = pytest.mark.slow  # more than two seconds

CLOSES_A_SEGMENT = Kind((330, 35))  # so does the newest frame of track 1 then, whose block lies last in its log
FEW = (
    "a byte missing at the end of frames.000001.log",
    "half of steps.000001.log missing",
    "newest of all tracks flipped",
    "state of COMMIT.000003 flipped, newest of track 0 in frames flipped",
    "states of COMMIT.000003 and its copy flipped, newest of track 0 in frames flipped",
    "front of COMMIT.000002 flipped, newest of track 0 in steps flipped",
    "newest commit gone, newest of track 0 in frames flipped",
    "all commits gone",
    "nothing",
)
KINDS = [
    Kind((330, 47), seed=0),
    Kind((330, 55), seed=0),
    *(Kind((364 + stack, 30), stack=stack, n_step=n_step) for stack, n_step in ((1, 3), (2, 1), (3, 4))),
    Kind((120, 60, 40), observations="dict", stack=2, n_step=3),
    Kind((364, 50), storage="raw"),
    Kind((365, 51, 60), storage="raw", stack=2, n_step=2),
    Kind((350, 40), observations="vectors", num_envs=3),
    Kind((350, 41), observations="scaled", n_step=3),
    Kind((250, 60), stack=2, resumes_first=True),
    Kind((250, 60), observations="dict", resumes_first=True),
    Kind((700, 800), retention="fifo", stack=3),
    Kind((700, 800), retention="fifo", storage="raw", n_step=3),
    Kind((1_100, 420), retention="fifo", observations="dict"),
    Kind((700, 800), retention="fifo", observations="scaled", stack=2, n_step=4),
    Kind((700, 300), retention="fifo", observations="vectors", resumes_first=True),
]


def assert_repaired_or_unchanged(life: RecordedStore, store: Path) -> Counter[str]:
    """Repair a store and compare it with the recording; count the outcomes of its generations."""
    before, folder = contents(store), FolderContents(store)
    try:
        known = {number for number in folder.numbers if number in folder.generations or folder.read(number).problem}
        repair = repair_store(store)
    except DamagedDataError:
        assert before == contents(store), "refused, and changed"
        return Counter({"stores that were refused and left as they were": 1})
    verification = verify_store(store)
    assert [] == [finding.message for finding in verification.findings], repair.actions
    there = set()
    for generation in verification.generations:
        memory = ReplayMemory.load(store, generation=generation)
        life.assert_is_part(memory)
        there.add(generation)
    assert len(memory) == verification.transitions
    named = {int(number) for number in re.findall(r"generation (\d+) is removed", "\n".join(repair.actions))}
    assert known - there <= named, repair.actions
    moved = {path.name for path in repair.moved_to.iterdir()} if repair.moved_to else set()
    assert not repair.moved_to or all(name in moved or (store / name).exists() for name in before), "a file is gone"
    outcome = "stores that were repaired" if repair.moved_to else "stores that were whole"
    return Counter(
        {outcome: 1, "generations that were kept": len(there), "generations that were moved aside": len(named)}
    )


def assert_each_is_repaired(kind: Kind, chosen: Iterable[str] | slice, folder: Path) -> Counter[str]:
    life = RecordedStore(kind, folder / "whole")
    damages = damages_of(folder / "whole")
    outcomes: Counter[str] = Counter()
    for name in list(damages)[chosen] if isinstance(chosen, slice) else chosen:
        store = Path(shutil.copytree(folder / "whole", folder / "store"))
        damages[name](store)
        try:
            outcomes += assert_repaired_or_unchanged(life, store)
        except (AssertionError, DamagedDataError) as error:
            raise AssertionError(f"{kind}, {name}: {error}") from error
        outcomes["stores"] += 1
        shutil.rmtree(store)
    return outcomes


def test_an_environment_whose_newest_segment_was_just_sealed_loads_after_a_repair(tmp_path):
    outcomes = assert_each_is_repaired(
        CLOSES_A_SEGMENT, ["a byte missing at the end of frames.000002.log", "newest of all tracks flipped"], tmp_path
    )

    assert 2 == outcomes["stores that were repaired"]


@pytest.mark.parametrize("retention", ["random", "fifo"])
def test_a_generation_and_one_that_went_back_to_it_keep_their_own_frames_through_a_repair(retention, tmp_path):
    kind = Kind((250, 60) if retention == "random" else (400, 150), retention=retention, stack=2, resumes_first=True)
    life = RecordedStore(kind, tmp_path / "whole")
    logs = sorted(path.name for path in (tmp_path / "whole").glob("frames-*.log"))

    for name in logs:
        for damage in (cut_off(name, 1), remove(name)):
            store = Path(shutil.copytree(tmp_path / "whole", tmp_path / "store"))
            damage(store)
            assert_repaired_or_unchanged(life, store)
            shutil.rmtree(store)


def test_a_memory_resumes_from_each_of_several_repaired_generations(tmp_path):
    life = RecordedStore(Kind((250, 60), stack=2, resumes_first=True), tmp_path / "whole")
    newest = damages_of(tmp_path / "whole")["newest of all tracks flipped"]

    for generation in life.numbers:
        store = Path(shutil.copytree(tmp_path / "whole", tmp_path / "store"))
        newest(store)
        repair_store(store)
        memory = ReplayMemory.load(store, generation=generation)
        life.close_episodes(memory)
        life.play(memory, 60)
        memory.save(store, keep_previous=True)
        for each in (generation, *verify_store(store).generations[-1:]):
            life.assert_is_part(ReplayMemory.load(store, generation=each))
        assert verify_store(store).is_intact
        shutil.rmtree(store)


def test_a_store_that_cannot_be_loaded_is_refused_and_unchanged(tmp_path, monkeypatch):
    RecordedStore(Kind((100, 40)), tmp_path / "store")
    cut_off(log_file(tmp_path / "store", "frames").name, 1)(tmp_path / "store")
    before = contents(tmp_path / "store")

    def refuse(*_arguments):
        raise DamagedDataError("block 3 of track 1 is not there")

    monkeypatch.setattr("framestow.replay.store.repair.load_intact", refuse)
    message = r"no generation can be loaded from the intact data .*block 3 of track 1.*nothing was changed"
    with pytest.raises(DamagedDataError, match=message):
        repair_store(tmp_path / "store")

    assert before == contents(tmp_path / "store")


@pytest.mark.parametrize("kind", [KINDS[2], KINDS[5], KINDS[13]], ids=str)
def test_a_store_repaired_after_a_few_damages_loads_and_equals_the_recording(kind, tmp_path):
    outcomes = assert_each_is_repaired(kind, FEW, tmp_path)

    assert len(FEW) == outcomes["stores"]
    # Refused, or whole: without any commit; damaged in nothing; and damaged in what only a commit without a copy had.
    assert len(FEW) - (2 if kind.stack == 2 else 3) == outcomes["stores that were repaired"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"kind {KINDS.index(kind)}")
def test_a_repaired_store_loads_and_equals_the_recording(kind, tmp_path, record_property):
    every_fourth = slice(KINDS.index(kind) % 4, None, 4)
    for outcome, number in sorted(assert_each_is_repaired(kind, every_fourth, tmp_path).items()):
        record_property(outcome, number)


@pytest.mark.exhaustive
@pytest.mark.parametrize("retention", ["random", "fifo"])
def test_step_counts_at_which_a_segment_ends_are_repaired(retention, tmp_path, record_property):
    outcomes: Counter[str] = Counter()
    for num_steps in range(20, 60 if retention == "random" else 30):
        kind = Kind((330 + num_steps, num_steps), retention=retention, seed=num_steps)
        folder = tmp_path / str(num_steps)
        folder.mkdir()
        damages = ["newest of all tracks flipped", "newest commit cut, newest of track 1 in frames flipped"]
        outcomes += assert_each_is_repaired(kind, damages, folder)
    for outcome, number in sorted(outcomes.items()):
        record_property(outcome, number)


def assert_skipped_damage_is_flushed(life: RecordedStore, store: Path) -> bool:
    """Open with ``on_damage="skip"``, read everything, and flush; the flushed store loads without the damage."""
    try:
        memory = ReplayMemory.open(store, read_only=False, on_damage="skip", flush_every=None)
    except (DamagedDataError, FileNotFoundError):
        return False
    with memory:
        life.read_all(memory)
        kept = life.assert_is_part(memory)
        memory.flush()
    try:
        again = ReplayMemory.load(store)
    except DamagedDataError as error:  # of a segment that no transition shows, so it was not read
        if "is damaged; keep the intact data with `framestow repair " not in str(error):
            raise
        repair_store(store)
        again = ReplayMemory.load(store)
    assert kept <= life.assert_is_part(again)
    repair_store(store)
    assert verify_store(store).is_intact
    assert len(again) == len(ReplayMemory.load(store))
    return True


@pytest.mark.parametrize(
    "kind", [CLOSES_A_SEGMENT, Kind((700, 800), retention="fifo", stack=2)], ids=["random", "fifo"]
)
def test_a_flush_leaves_out_skipped_damage(kind, tmp_path):
    life = RecordedStore(kind, tmp_path / "whole")
    damages = damages_of(tmp_path / "whole")
    num_opened = 0
    for name in ("newest of all tracks flipped", "a byte missing at the end of frames.000001.log"):
        store = Path(shutil.copytree(tmp_path / "whole", tmp_path / "store"))
        damages[name](store)
        num_opened += assert_skipped_damage_is_flushed(life, store)
        shutil.rmtree(store)

    assert 2 == num_opened


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore:.*its copy has the same content:RuntimeWarning")
@pytest.mark.parametrize("first", range(6))
def test_a_flush_leaves_out_damage_skipped_anywhere(first, tmp_path, record_property):
    outcomes: Counter[str] = Counter()
    for number, kind in enumerate(KINDS[first::6]):
        if not kind.resumes_first:
            life = RecordedStore(kind, tmp_path / f"whole {number}")
            damages = damages_of(tmp_path / f"whole {number}")
            for name in [name for name in damages if "," not in name][first::6]:
                store = Path(shutil.copytree(tmp_path / f"whole {number}", tmp_path / "store"))
                damages[name](store)
                was_opened = assert_skipped_damage_is_flushed(life, store)
                outcomes["stores that were opened and flushed" if was_opened else "stores that were refused"] += 1
                shutil.rmtree(store)
    for outcome, count in sorted(outcomes.items()):
        record_property(outcome, count)
