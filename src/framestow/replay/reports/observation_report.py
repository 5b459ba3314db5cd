"""What a memory says about its observations: how many are stored whole, and warnings about unusual training loops.

``ReplayMemory.add`` shows every step here that it cannot store as one frame. It stores each of them; so the warnings
are about bytes, or about steps that a learner should not see. Regular steps do not come here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from framestow.errors import ObservationWarning
from framestow.interface import plural, warn_caller
from framestow.replay.memory_parts import MemoryParts
from framestow.replay.reading.sampling import BatchBuilder

AXIS_NAMES = {0: "first", -1: "last"}


@dataclass(frozen=True)
class ObservationReport:
    """How the observations of a memory are stored, and what is unusual about its steps; prints as some lines.

    ======================  ========================================================================================
    field                   meaning
    ======================  ========================================================================================
    stacks                  by key, the number of frames in an observation and the axis that they are stacked on, or
                            ``None``; the key is empty if an observation is one array
    observations            number of stored observations
    whole                   number of them that are stored whole, with their older frames. Those in the files of a
                            memory that was opened count once they were read
    bordered_sequences      number of sampled sequences that had a border (docs/observations.md)
    wrong_last              number of truncated steps whose next observation is the next episode's first one
    resets                  number of steps that lead from the end of an episode to the beginning of the next one
    in_one_array            number of steps whose observation and next observation are one array that was written into
    ======================  ========================================================================================

    The last three count what was added since the memory was built or loaded.

    >>> from framestow.replay.reports.observation_report import ObservationReport
    >>> print(ObservationReport({"": (4, 0)}, observations=1000, whole=20))
    stacks of 4 on the first axis; 2.0 % of the observations stored whole
    """

    stacks: Mapping[str, tuple[int, int] | None]
    observations: int = 0
    whole: int = 0
    bordered_sequences: int = 0
    wrong_last: int = 0
    resets: int = 0
    in_one_array: int = 0

    @classmethod
    def of_all(cls, reports: Sequence[ObservationReport | None]) -> ObservationReport | None:
        """Return one report of the observations of several memories, which are stacked alike."""
        known = [report for report in reports if report is not None]
        counts = [each.name for each in fields(cls) if each.name != "stacks"]
        sums = {name: sum(getattr(report, name) for report in known) for name in counts}
        return replace(known[0], **sums) if known else None

    @property
    def share_whole(self) -> float:
        """Share of the observations that are stored whole, from 0 to 1."""
        return self.whole / self.observations if self.observations else 0.0

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """Return the lines of a printed report."""
        lines = list(self._layout_lines())
        if any(self.stacks.values()):
            whole = f"{self.share_whole:.1%}".replace("%", " %") + " of the observations stored whole"
            lines = [f"{lines[0]}; {whole}"] if len(lines) == 1 else [*lines, whole]
        counts = {
            "sampled sequences had a border": self.bordered_sequences,
            "truncated steps have the next episode's first observation": self.wrong_last,
            "steps lead from an episode's end to the next one": self.resets,
            "steps have their next observation in the array of their observation": self.in_one_array,
        }
        return lines + [f"{count:,} {what}" for what, count in counts.items() if count]

    def _layout_lines(self) -> Iterator[str]:
        """Yield how the arrays are stacked: one line if all are alike, otherwise one for each."""
        texts = {
            key: "no stacks" if each is None else f"stacks of {each[0]} on the {AXIS_NAMES[each[1]]} axis"
            for key, each in self.stacks.items()
        }
        if len(set(texts.values())) == 1:
            yield next(iter(texts.values()))
        else:
            yield from (f"{key}: {text}" for key, text in texts.items())


WINDOW = 64  # observations of each environment, at least, of which half have to be whole for a warning
FEWEST_ENDS = 3  # of episodes that a warning is about
FEWEST_IN_ONE_ARRAY = 3  # steps that a warning is about


class ObservationWatch:
    """Counts the unusual steps of a memory, and warns once of each kind that is not rare.

    =====================================================  ==========================================================
    warning                                                condition
    =====================================================  ==========================================================
    observations are stored whole                          half of the last 64, or more, of each environment
    the next episode begins with a truncated one's last    at least 3 times, and after most truncated episodes
    next observation
    a step is recorded that resets the environment         at least 3 times, and after most episodes
    observation and next observation are one array         at least 3 times, written into after the step before
    =====================================================  ==========================================================

    The second and the third need an observation that is not the next one too, and has more than one value. Where
    observations are stacks, such a next observation is not its observation shifted by a frame, and a step that resets
    is a border.
    """

    def __init__(self, parts: MemoryParts, batches: BatchBuilder) -> None:
        self._parts, self._batches, self._layout = parts, batches, parts.settings.layout
        # How many of the last observations are whole, counted from the number of observations that were stored then.
        self._num_whole, self._counted_from = 0, -1
        self._num_ends = self._num_truncated = self._num_wrong_last = self._num_resets = self._num_in_one_array = 0
        self._warned: set[str] = set()
        self.frame_stack: str | None = None
        """Name of the argument by which a drop-in's user chooses the depth of stacks; ``None`` for ``stack_axis``."""

    def report(self) -> ObservationReport:
        """Return what was found; hold the memory's lock."""
        arrays, storage = self._layout.arrays, self._parts.frames
        return ObservationReport(
            {
                array.key: None if stacks is None or stacks.depth == 1 else (stacks.depth, stacks.axis)
                for array, stacks in zip(arrays, self._layout.stacks, strict=True)
            },
            storage.num_frames_of(0)[0],
            max(storage.num_whole_of(number) for number in range(len(arrays))),
            self._batches.num_bordered_sequences,
            self._num_wrong_last,
            self._num_resets,
            self._num_in_one_array,
        )

    def count_unusual(
        self,
        num_whole: int,
        num_in_one_array: int,
        num_ends: int,
        num_truncated: int,
        num_wrong_last: int,
        num_resets: int,
    ) -> None:
        """Count what ``Core.unusual`` found in a step that is about to be stored; warn of what is not rare."""
        if num_in_one_array:  # whatever else is unusual comes from it
            self._num_in_one_array += num_in_one_array
            if self._num_in_one_array >= FEWEST_IN_ONE_ARRAY:
                self._warn(
                    "one array",
                    f"observation and next_observation are one array in {plural(self._num_in_one_array, 'step')}, "
                    "which the environment writes into: each next observation equals its observation; give copies, "
                    "such as observation = env.step(action)[0].copy()",
                )
            return
        self._num_ends += num_ends
        self._num_truncated += num_truncated
        self._num_wrong_last += num_wrong_last
        self._num_resets += num_resets
        if num_wrong_last and _are_most(self._num_wrong_last, self._num_truncated, FEWEST_ENDS):
            self._warn(
                "wrong last",
                f"the last next_observation of {self._num_wrong_last} of {self._num_truncated} truncated episodes is "
                "the first observation of the next one: a learner bootstraps from it; give the true last one "
                '(Gymnasium: infos["final_obs"]), and no step that resets the environment',
            )
        if num_resets and _are_most(self._num_resets, self._num_ends, FEWEST_ENDS):
            self._warn(
                "resets",
                f"{self._num_resets} of {self._num_ends} episodes are followed by a step from their last observation "
                "to the next episode: with AutoresetMode.NEXT_STEP, the step after an end only resets the environment; "
                "leave it out",
            )
        if num_new := self._count_whole(num_whole):
            self._warn("stored whole", self._describe_whole(num_new))
            self._num_whole = 0

    def _count_whole(self, num_whole: int) -> int:
        """Count the observations that are stored whole; return among how many they are most, or 0."""
        newest_positions = self._parts.steps.newest_positions
        num_stored = int(newest_positions.sum()) + len(newest_positions)
        if self._counted_from < 0:
            self._counted_from = num_stored
        num_new = num_stored - self._counted_from
        self._num_whole += num_whole
        if num_new < WINDOW * len(newest_positions):
            return 0
        self._counted_from = num_stored
        if 2 * self._num_whole >= num_new:
            return num_new
        self._num_whole = 0
        return 0

    def _describe_whole(self, num_new: int) -> str:
        of_space = (
            'give stack_axis="none", or the axis that is one'
            if self.frame_stack is None
            else f"give {self.frame_stack}=1"
        )
        way_out = "leave out stack=" if self._layout.takes_frames else of_space
        return (
            f"{min(self._num_whole, num_new)} of the last {num_new} observations are stored whole, with their older "
            f"frames: the shape looks like stacks of {self._layout.depth} frames, but the next observation is not the "
            "observation shifted by one frame. Batches are right, and take more bytes; check that every step is given "
            "with its own last observation, and that stacks are made after all other wrappers, oldest frame first; if "
            f"they are no stacks, {way_out}"
        )

    def _warn(self, kind: str, message: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            warn_caller(message, ObservationWarning)


def _are_most(count: int, whole: int, fewest: int) -> bool:
    return count >= fewest and 2 * count > whole
