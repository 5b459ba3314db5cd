"""``ReplayEnsemble``: batches with fixed shares of several memories, such as demonstrations and online play."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from framestow._core import OutputPool
from framestow.checks import one_of, real_number
from framestow.errors import DamagedSegmentError, InvalidSettingsError, NothingToSampleError
from framestow.frames.observation_spec import map_arrays
from framestow.interface import CHANGES, LacksCalls, one_line, plural
from framestow.keywords import suggests_keywords
from framestow.replay.forked_locks import call_in_children
from framestow.replay.memory import check_batch_size
from framestow.replay.reading.batch import MEMBER_SHIFT
from framestow.replay.reading.read_calls import ReadCalls
from framestow.replay.reading.sequences import Borders, SequenceShape
from framestow.replay.reports.memory_report import MemoryReport, sum_of_reports
from framestow.replay.samplers.sampler import check_priorities
from framestow.replay.settings.memory_settings import MemorySettings

MOST_MEMBERS = 2 ** (63 - MEMBER_SHIFT)
TOLERANCE = 1e-6  # of the sum of shares

IfEmpty = Literal["raise", "others"]


@suggests_keywords
class ReplayEnsemble(ReadCalls, LacksCalls):
    """Samples batches with a fixed share of each of several memories.

    >>> import numpy as np
    >>> from framestow import FrameSpec, ReplayEnsemble, ReplayMemory
    >>> members = [
    ...     ReplayMemory(100, FrameSpec((2, 2)), 4, stack=4, seed=seed)
    ...     for seed in range(2)
    ... ]
    >>> for memory in members:
    ...     memory.begin(np.zeros((1, 2, 2), np.uint8))
    ...     indices = memory.append(
    ...         [3], [0.5], [False], [False], np.ones((1, 2, 2), np.uint8)
    ...     )
    >>> demonstrations, online = members
    >>> ensemble = ReplayEnsemble([demonstrations, online], [0.5, 0.5])
    >>> ensemble.sample(5).memory.tolist(), ensemble.sample(5).memory.tolist()
    ([0, 0, 0, 1, 1], [0, 0, 1, 1, 1])

    It has the calls of a memory that loaders and learners need. Each member draws its rows by its own sampler and
    generator, and ``weight`` is its own too. Steps are added to the members.

    A batch of B transitions has B times its share of each member, rounded by the largest remainder. The rest is carried
    to the next batch, so each member's count is always less than one row away from its share of all rows. Save
    ``carried`` in a checkpoint. Rows are in the order of the members; ``Batch.memory`` has the member of each row.

    Arguments:
        members: 1 to 16 memories: in RAM, on disk, read-only, or a ``ShardedReplay``. Their observations, actions,
            extras, ``n_step`` and ``discount`` must be the same; all other settings may differ.
        shares: The share of each member, above 0; together 1.
        if_empty: ``"raise"`` raises ``NothingToSampleError`` for an empty member, ``"others"`` gives its share to the
            others, in proportion to theirs.
        carried: ``carried`` of an earlier ensemble, to go on with.

    Raises:
        InvalidSettingsError: members that differ, or shares that do not sum to 1.

    Threads: as those of its members. ``sample`` may be called by several threads.
    """

    _lacking = (
        CHANGES | {"add", "append", "begin"},
        "each member has its own steps; call it of its members, with indices of a member's own batches",
    )

    def __init__(
        self,
        members: Sequence[ReadCalls],
        shares: Sequence[float],
        *,
        if_empty: IfEmpty = "raise",
        carried: Sequence[float] | None = None,
    ) -> None:
        self.members = _check_members(members)
        rule = "it must be above 0; leave the member out instead"
        self.shares = _check_numbers("shares", shares, len(self.members), 0.0, math.inf, rule)
        if not math.isclose(sum(self.shares), 1, abs_tol=TOLERANCE):
            raise InvalidSettingsError(
                f"shares are {list(shares)}: they sum to {sum(self.shares):g}; give shares that sum to 1"
            )
        one_of("if_empty", if_empty, get_args(IfEmpty))
        self.if_empty = if_empty
        zeros = [0.0] * len(self.members)
        most = len(zeros)  # 16 members with random shares were owed up to 1.4 rows
        rule = f"{most} members are owed fractions of rows; give carried of an earlier ensemble"
        self.carried = _check_numbers("carried", zeros if carried is None else carried, most, -most, most, rule)
        """Rows that each member is owed: less than 1, and below 0 where it gave too many."""
        # Held while rows are counted and drawn, and while an array is taken. A forked child makes a new one:
        # what a thread of the parent counted at the fork is carried there.
        self._lock = threading.Lock()
        self._pool = OutputPool()
        call_in_children(self)

    def enter_child(self) -> None:
        """Make a new lock: a thread of the parent may hold the old one."""
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        def details() -> Iterator[str]:
            for number, (member, share) in enumerate(zip(self.members, self.shares, strict=True)):
                yield f"{share:.0%} of member {number} with {plural(len(member), 'transition')}"

        return one_line(self, details)

    def __len__(self) -> int:
        """Return the number of transitions of all members."""
        return sum(map(len, self.members))

    @property
    def nbytes(self) -> int:
        """Number of bytes that all members take in RAM."""
        return sum(member.nbytes for member in self.members)

    def report(self) -> MemoryReport:
        """Return the sum of the reports of all members."""
        reports = [member.report() for member in self.members]
        return sum_of_reports(reports, sum(each.capacity for each in reports))

    def draw_ahead(self, batch_size: int) -> PendingRowsOfMembers:
        """Draw now as ``sample`` does, and leave the unpacking to another thread."""
        return self._draw(check_batch_size(batch_size), lambda member, count: member.draw_ahead(count))

    def draw_sequences_ahead(
        self,
        batch_size: int,
        length: int,
        *,
        overlap: int | None = None,
        burn_in: int = 0,
        borders: Borders = "mask",
    ) -> PendingRowsOfMembers:
        """Draw now as ``sample_sequences`` does, and leave the unpacking to another thread."""
        batch_size = check_batch_size(batch_size)
        SequenceShape(length, overlap, burn_in, borders)  # raises before a member draws
        choice: dict[str, Any] = {"overlap": overlap, "burn_in": burn_in, "borders": borders}
        return self._draw(batch_size, lambda member, count: member.draw_sequences_ahead(count, length, **choice))

    def update_priorities(self, indices: npt.ArrayLike, priorities: npt.ArrayLike) -> None:
        """Pass new TD errors to the members that the ``indices`` are of.

        Those of members without priorities are ignored, unless no member of the ensemble has any.

        Raises:
            InvalidSettingsError: before anything changes in any member, for values that a memory or the sampler of a
                member refuses, for indices of no member, and if no member has priorities.
        """
        numbers, values = check_priorities(indices, priorities)
        of_member = numbers >> MEMBER_SHIFT
        if numbers.size and of_member.max() >= len(self.members):
            raise InvalidSettingsError(
                f"an index is {numbers.max()}: it is of member {of_member.max()}, and there are {len(self.members)}; "
                "take indices from a batch of this ensemble"
            )
        asked = [
            (member, numbers[rows] - (number << MEMBER_SHIFT), values[rows])
            for number, member in enumerate(self.members)
            if (rows := of_member == number).any()
        ]
        prioritized = [(member, own, errors) for member, own, errors in asked if member.sampler.check_update(errors)]
        if not prioritized and not any(member.sampler.check_update(values[:0]) for member in self.members):
            prioritized = asked[:1]  # which says so
        for member, own, errors in prioritized:
            member.update_priorities(own, errors)

    def _draw(self, batch_size: int, draw: Any) -> PendingRowsOfMembers:
        with self._lock:
            before = self.carried
            pending = PendingRowsOfMembers(self._join)
            try:
                for number, count in enumerate(self._count_rows(batch_size)):
                    if count:
                        pending.add(number, draw(self.members[number], count))
                return pending
            except BaseException:  # also Ctrl-C: a lost draw would block a writer
                self.carried = before
                pending.stop()
                raise

    def _count_rows(self, batch_size: int) -> list[int]:
        """Return how many rows each member gives, and carry the rest."""
        empty = [not len(member) for member in self.members]
        if any(empty) and (all(empty) or self.if_empty == "raise"):
            raise NothingToSampleError(
                f"member {empty.index(True)} of the ensemble has no transition: its share cannot be sampled; append "
                "steps first, or build the ensemble with if_empty='others'"
            )
        shares = np.where(empty, 0.0, self.shares)
        owed = np.where(empty, 0.0, self.carried)
        owed += (batch_size - owed.sum()) * shares / shares.sum()
        counts = np.maximum(np.floor(owed), 0.0)
        while (missing := batch_size - counts.sum()) != 0:
            rest = owed - counts
            if missing > 0:
                counts[np.argmax(np.where(empty, -np.inf, rest))] += 1
            else:
                counts[np.argmin(np.where(counts > 0, rest, np.inf))] -= 1
        self.carried = np.where(empty, self.carried, owed - counts).tolist()
        return [int(count) for count in counts]

    def _join(self, numbers: list[int], batches: list[Any]) -> Any:
        """Return the rows of several members as one batch."""
        index = [
            np.where(batch.index < 0, batch.index, batch.index + (number << MEMBER_SHIFT))
            for number, batch in zip(numbers, batches, strict=True)
        ]
        if len(batches) == 1:
            return replace(batches[0], index=index[0])
        fields = {"index": np.concatenate(index)}
        for name, first in vars(batches[0]).items():
            if name not in ("index", "burn_in"):
                join = self._join_frames if name.endswith("observation") else _join_columns
                fields[name] = map_arrays(join, first, *(getattr(batch, name) for batch in batches[1:]))
        return replace(batches[0], **fields)

    def _join_frames(self, *parts: npt.NDArray[Any]) -> npt.NDArray[Any]:
        with self._lock:
            joined = self._pool.take((sum(map(len, parts)), *parts[0].shape[1:]), parts[0].dtype)
        return np.concatenate(parts, out=joined)


class PendingRowsOfMembers:
    """A draw of several members that is not unpacked yet. Call ``unpack`` once, from any thread, or ``stop``."""

    def __init__(self, join: Any) -> None:
        self._join = join
        self._numbers: list[int] = []  # of the members
        self._pending: list[Any] = []  # their draws
        self._batches: list[Any] = []  # those that are unpacked

    def add(self, number: int, pending: Any) -> None:
        """Add the draw of a member."""
        self._pending.append(pending)
        self._numbers.append(number)

    def unpack(self) -> Any:
        """Unpack and return the batch; raise ``DamagedSegmentError`` for damage, and go on there after ``redraw``."""
        while len(self._batches) < len(self._pending):
            self._batches.append(self._pending[len(self._batches)].unpack())
        return self._join(self._numbers, self._batches)

    def redraw(self, error: DamagedSegmentError) -> None:
        """Draw the rows of the member whose segment is damaged again, without it; or raise ``error``."""
        self._pending[len(self._batches)].redraw(error)

    def stop(self) -> None:
        """Release the frames; does not change a batch that was returned."""
        for pending in self._pending:
            pending.stop()


def _join_columns(*parts: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.concatenate(parts)


def _check_members(members: Any) -> tuple[Any, ...]:
    """Return the members; raise ``InvalidSettingsError`` unless their batches can be joined."""
    if not isinstance(members, (list, tuple)) or not 1 <= len(members) <= MOST_MEMBERS:
        raise InvalidSettingsError(
            f"members are {members!r}: an ensemble has 1 to {MOST_MEMBERS} memories; give [demonstrations, online]"
        )
    forms = []
    for number, member in enumerate(members):
        settings = getattr(member, "settings", None) or getattr(getattr(member, "inner", None), "settings", None)
        if not isinstance(settings, MemorySettings):
            raise InvalidSettingsError(f"member {number} is {member!r}: it must be a ReplayMemory; give one")
        if any(member is other for other in members[:number]):
            raise InvalidSettingsError(f"member {number} is {member!r}: it is a member already; give each memory once")
        forms.append(_form_of(settings))
    for number, form in enumerate(forms):
        for name, value in form.items():
            if value != forms[0][name]:
                raise InvalidSettingsError(
                    f"{name} of member {number} is {value}, and {forms[0][name]} of member 0: their batches cannot be "
                    f"joined; give members with the same {name}"
                )
    return tuple(members)


def _form_of(settings: MemorySettings) -> dict[str, Any]:
    """Return what the members of an ensemble have in common, by name."""
    spec = settings.layout.spec
    observation = spec.arrange([(array.observed_shape, str(array.frame.dtype)) for array in spec.arrays])
    names = ("action", "extras", "n_step", "discount")
    return {"observation": observation} | {name: getattr(settings, name) for name in names}


def _check_numbers(name: str, values: Any, count: int, least: float, most: float, rule: str) -> list[float]:
    """Return one number for each member, each above ``least`` and at most ``most``."""
    if not isinstance(values, (list, tuple)) or len(values) != count:
        raise InvalidSettingsError(
            f"{name} are {values!r}: an ensemble has one for each member; give a list of {count}"
        )
    return [
        real_number(f"{name}[{number}]", value, least, most, rule=rule, is_least_excluded=True)
        for number, value in enumerate(values)
    ]
