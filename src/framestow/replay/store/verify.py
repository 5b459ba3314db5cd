"""Verifies a store: every byte of every file that a kept generation names, and that they fit together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from framestow.replay.store.blocks import ExaminedLog
from framestow.replay.store.examination import ExaminedGeneration, ExaminedStore, Finding, Progress
from framestow.replay.store.format import FRAMES, checked_manifest, file_names
from framestow.storage.files.block_format import INDEX, BlockKey
from framestow.storage.files.file_system import DISK, FileSystem
from framestow.storage.files.manifest import generations


@dataclass(frozen=True)
class Verification:
    """What was gone through, and what of it is not as it was written."""

    folder: Path
    generations: list[int]
    """Those whose manifests are whole."""
    num_bytes: int
    num_blocks: int
    transitions: int
    """How many the newest readable generation still has."""
    lost: int
    """How many more it had when it was written."""
    findings: list[Finding]

    @property
    def is_whole(self) -> bool:
        """Whether everything is as it was written."""
        return not self.findings


def verify_store(folder: Path, progress: Progress = lambda _done, _all: None, files: FileSystem = DISK) -> Verification:
    """Read everything, unpack every frame, compare every step; change nothing.

    In RAM are a segment's frames at a time (8 MiB at most) and the steps, a dozen bytes each. Beside a writer this
    verifies what was committed when it began. Raises ``FileNotFoundError`` for a folder without a store and
    ``IncompatibleError`` for one of another version.
    """
    with ExaminedStore(folder, files, progress) as store:
        verification = verification_of(store)
    there = generations(folder, files)
    if not there or there == store.there:
        return verification
    # A writer went on meanwhile, and removed what its generations need no more: that is no damage.
    if not verification.generations:
        return verify_store(folder, progress, files)
    needed = _needed_names(folder, files)
    gone = {path for path in (finding.file for finding in verification.findings) if not path.exists()}
    findings = [one for one in verification.findings if one.file not in gone or one.file.name in needed]
    return replace(verification, findings=findings)


def _needed_names(folder: Path, files: FileSystem) -> set[str]:
    """Names of the files that the generations of a folder need at one moment."""
    while True:
        there = generations(folder, files)
        try:
            return {name for number in there for name in file_names(checked_manifest(folder, number, files))}
        except FileNotFoundError:  # a writer removed one between the listing and the reading
            if generations(folder, files) == there:
                raise


def verification_of(store: ExaminedStore) -> Verification:
    """Sum up what was found."""
    newest = store.newest
    return Verification(
        folder=store.folder,
        generations=[manifest.generation for manifest in store.manifests],
        num_bytes=store.num_bytes,
        num_blocks=sum(log.num_blocks for log in store.logs.values()),
        transitions=len(newest.timeline) if newest else 0,
        lost=newest.lost if newest else 0,
        findings=store.findings + [finding for log in store.logs.values() for finding in _findings_of(log, newest)],
    )


def _findings_of(log: ExaminedLog, newest: ExaminedGeneration | None) -> list[Finding]:
    """What is wrong with a log, each with what it costs the newest generation."""
    costs: dict[BlockKey, int] = {}
    if newest is not None:
        costs = newest.lost_segments if log.name == FRAMES else newest.lost_steps
    named = {damage.key for damage in log.damages}
    unnamed = sum(cost for key, cost in costs.items() if key not in named)
    nameless = [damage for damage in log.damages if damage.key is None and damage.file.suffix != f".{INDEX}"]
    findings = []
    cost: int | None
    for damage in log.damages:
        if damage.key is not None:
            cost = costs.get(damage.key, 0)
        elif damage not in nameless:
            cost = 0  # an index says nothing that its log does not
        else:  # a block that nothing tells of any more lies somewhere in these bytes
            cost = unnamed if len(nameless) == 1 else None
        findings.append(Finding(damage.file, damage.offset, damage.message, cost))
    return findings
