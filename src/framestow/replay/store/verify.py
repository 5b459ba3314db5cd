"""Verify a store: every byte of every file that a kept generation names, and that the files fit together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from framestow.replay.store.folder_contents import read_while_written
from framestow.replay.store.format import FRAMES, file_names, read_checked_manifest
from framestow.replay.store.verified_log import VerifiedLog
from framestow.replay.store.verified_store import Finding, Progress, VerifiedGeneration, VerifiedStore
from framestow.storage.files.block_format import INDEX, BlockKey
from framestow.storage.files.file_system import DISK, FileSystem
from framestow.storage.files.manifest import generations


@dataclass(frozen=True)
class Verification:
    """Result of a verification."""

    folder: Path
    generations: list[int]
    """Generations with an intact manifest."""
    num_bytes: int  # of all committed files
    num_blocks: int  # of both logs
    transitions: int
    """Transitions of the newest readable generation that can still be read; without a state file, those that a repair
    rebuilds from the logs."""
    lost: int
    """Transitions of that generation that cannot be read any more."""
    findings: list[Finding]

    @property
    def is_intact(self) -> bool:
        """Whether everything is as framestow wrote it."""
        return not self.findings


def verify_store(folder: Path, progress: Progress = lambda _done, _all: None, files: FileSystem = DISK) -> Verification:
    """Read every byte of a store, unpack every frame and compare every step; change nothing.

    While another process writes, this verifies the generations at the start. RAM holds the steps, a dozen bytes each,
    and at most 8 MiB of frames at a time.

    Raises:
        FileNotFoundError: the folder contains no store.
        IncompatibleError: another version wrote the store.
    """
    with VerifiedStore(folder, files, progress) as store:
        verification = verification_of(store)
    numbers = generations(folder, files)
    if not numbers or numbers == store.numbers_at_start:
        return verification
    # A concurrent writer removed files that its generations no longer need: that is not damage.
    if not verification.generations:
        return verify_store(folder, progress, files)
    needed = _list_needed_names(folder, files)
    findings = [one for one in verification.findings if one.file.exists() or one.file.name in needed]
    return replace(verification, findings=findings)


def _list_needed_names(folder: Path, files: FileSystem) -> set[str]:
    """Return the names of the files that the folder's generations need, all read from one state."""

    def read() -> set[str]:
        manifests = [read_checked_manifest(folder, number, files) for number in generations(folder, files)]
        return {name for manifest in manifests for name in file_names(manifest)}

    return read_while_written(folder, read, files)


def verification_of(store: VerifiedStore) -> Verification:
    """Summarize the findings of a verified store."""
    newest = store.newest or store.rebuild()
    return Verification(
        folder=store.folder,
        generations=[manifest.generation for manifest in store.manifests],
        num_bytes=store.num_bytes,
        num_blocks=sum(log.num_blocks for log in store.logs.values()),
        transitions=len(newest.stored_steps) if newest else 0,
        lost=newest.lost if newest else 0,
        findings=store.findings + [finding for log in store.logs.values() for finding in _findings_of(log, newest)],
    )


def _findings_of(log: VerifiedLog, newest: VerifiedGeneration | None) -> list[Finding]:
    """Return the damage of a log, each with the transitions of the newest generation that it costs."""
    costs: dict[BlockKey, int] = {}
    if newest is not None:
        costs = newest.lost_segments if log.name == FRAMES else newest.lost_steps
    known = {damage.key for damage in log.damages}
    unassigned = sum(cost for key, cost in costs.items() if key not in known)
    without_block = [damage for damage in log.damages if damage.key is None and damage.file.suffix != f".{INDEX}"]
    findings = []
    cost: int | None
    for damage in log.damages:
        if damage.key is not None:
            cost = costs.get(damage.key, 0)
        elif damage not in without_block:
            cost = 0  # an index repeats its log
        else:  # these bytes contain a block of unknown key
            cost = unassigned if len(without_block) == 1 else None
        findings.append(Finding(damage.file, damage.offset, damage.message, cost))
    return findings
