"""What a learner draws from a memory: the part of ``ReplayMemory`` that makes batches."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from framestow.argument_checks import checked_indices, checked_seed, real_number, truth_value, whole_number
from framestow.errors import NothingToSampleError
from framestow.replay.batch import Batch
from framestow.replay.drawing.gathering import Gathering, PendingBatch
from framestow.replay.drawing.held_batches import HeldBatches
from framestow.replay.drawing.held_steps import HeldSteps, held_steps
from framestow.replay.drawing.sequence_starts import Borders, SequenceShape
from framestow.replay.drawing.sequences import PendingSequences, Sequences
from framestow.replay.episodes.held_episodes import HeldEpisode, held_episodes
from framestow.replay.memory_parts import MemoryParts
from framestow.replay.samplers.checked_priorities import checked_priorities
from framestow.replay.samplers.sampler import Sampler
from framestow.replay.sequence_batch import SequenceBatch


class DrawnMemory:
    """Draws, looks up and goes through the transitions of a memory."""

    def __init__(self, parts: MemoryParts) -> None:
        self._parts = parts
        self._gathering = Gathering(parts)
        self._sequences = Sequences(parts, self._gathering)

    def sample(self, batch_size: int) -> Batch:
        """Draw ``batch_size`` transitions, with replacement, by the memory's sampler and generator.

        Raises ``NothingToSampleError`` while there is none.
        """
        batch_size = checked_batch_size(batch_size)
        return self._gathering.drawn(batch_size)

    def _draw_ahead(self, batch_size: int) -> PendingBatch:
        """Draw as ``sample`` does, now, and unpack later: what loaders build on, so that a learner need not wait.

        The same draws give the same batches, whoever gathers them, and when. See ``PendingBatch`` for what is owed.
        """
        batch_size = checked_batch_size(batch_size)
        return self._gathering.draw_ahead(batch_size)

    @property
    def sampler(self) -> Sampler:
        """What draws. Another one can be set at any time; it begins with all that is held, in the same generator.

        Raises ``InvalidSettingsError`` for one that another memory draws by, alone or as a part of a `Mixture`.
        """
        return self._parts.told.sampler

    @sampler.setter
    def sampler(self, sampler: Sampler) -> None:
        self._parts.switch_sampler(sampler)

    def update_priorities(self, indices: npt.ArrayLike, priorities: npt.ArrayLike) -> None:
        """Tell the sampler the TD errors, of any sign, of the transitions with these indices (``Batch.index``).

        Both have the same shape; CPU tensors are taken as arrays are. Transitions that have left meanwhile, and indices
        of -1, are left out; where one comes twice, the last error counts. Raises ``InvalidSettingsError``, before
        anything is changed, for shapes that differ, for what is not finite, and for a sampler without priorities.
        """
        self._parts.update_priorities(*checked_priorities(indices, priorities))

    def sample_sequences(
        self,
        batch_size: int,
        length: int,
        *,
        overlap: int | None = None,
        burn_in: int = 0,
        borders: Borders = "mask",
    ) -> SequenceBatch:
        """Draw ``batch_size`` sequences of ``length`` steps that follow on one another, for recurrent and world models.

        Each starts at a transition that the memory's sampler draws. Its steps are single ones, whatever ``n_step`` is,
        and they go on to the newest step. docs/sampling.md has what R2D2 and DreamerV3 ask for.

        Arguments:
            batch_size: how many sequences.
            length: steps of a sequence, 1 to 65,536, those of the burn-in among them.
            overlap: if given, sequences start only at multiples of ``length - overlap`` steps from the beginning of an
                episode: a drawn transition is taken back to the start before it (Kapturowski et al. 2019, R2D2). Where
                that has left the memory, to the first behind it that is held.
            burn_in: how many steps at the front are only to warm up recurrent state: ``learns`` leaves them out.
            borders: ``"mask"``: what is behind the end of an episode is masked; ``"inside"``: only starts from which
                ``length`` steps of one episode follow; ``"cross"``: goes on into the stream's next episode, whose first
                step ``is_first`` tells (Hafner et al. 2023, DreamerV3). Steps that left or were lost end a sequence
                everywhere.

        Raises ``NothingToSampleError`` where the memory has no such sequence.
        """
        batch_size = checked_batch_size(batch_size)
        shape = SequenceShape(length, overlap, burn_in, borders)
        shape.check()
        return self._sequences.drawn(batch_size, shape)

    def _draw_sequences_ahead(
        self,
        batch_size: int,
        length: int,
        *,
        overlap: int | None = None,
        burn_in: int = 0,
        borders: Borders = "mask",
    ) -> PendingSequences:
        """Draw as ``sample_sequences`` does, now, and unpack later: ``_draw_ahead`` of sequences."""
        batch_size = checked_batch_size(batch_size)
        shape = SequenceShape(length, overlap, burn_in, borders)
        shape.check()
        return self._sequences.draw_ahead(batch_size, shape)

    def sample_episodes(self, batch_size: int) -> SequenceBatch:
        """Draw ``batch_size`` whole episodes with replacement, each equally likely, however long it is.

        One is whole if all of its steps are held and it has ended, be it that the next began before its end. They come
        as sequences as long as the longest of them, so a batch takes the bytes of that for each; ``episodes`` gives
        frames piece by piece. Raises ``NothingToSampleError`` where none is whole.
        """
        batch_size = checked_batch_size(batch_size)
        return self._sequences.episodes(batch_size)

    def batches(
        self, batch_size: int, *, shuffled: bool = False, seed: int | None = None, drop_last: bool = False
    ) -> HeldBatches:
        """Go once through all transitions that are held now, each in exactly one batch: for offline learning.

        In the order of their indices, or ``shuffled`` by a generator of their own with this ``seed`` (fresh entropy if
        ``None``), which takes 8 bytes a transition. The memory's generator is not touched. What leaves meanwhile is
        left out, what comes is not taken in. ``drop_last`` leaves out a last batch that is not full. The iterator's
        ``len()`` tells how many batches are to come.
        """
        batch_size = checked_batch_size(batch_size)
        shuffled, drop_last = truth_value("shuffled", shuffled), truth_value("drop_last", drop_last)
        seed = checked_seed(seed)
        return HeldBatches(self._parts, self._gathering.chosen_by, batch_size, shuffled, seed, drop_last)

    def returns_to_go(self, indices: npt.ArrayLike, discount: float = 1.0) -> npt.NDArray[np.float64]:
        """Give what followed on steps: the rewards from each to the end of its episode, the k-th times ``discount**k``.

        ``indices``: of steps, of any shape, as any batch's ``index`` has them; -1, where a sequence is masked, gives 0.
        Of an episode that goes on it is what has come so far, as it is of one that was cut off. NaN where a step that
        comes before the end has left the memory or was lost; with the default retention none leaves there. Summed in
        double; takes a time that grows with the steps up to the ends of these episodes. Raises
        ``NothingToSampleError`` for a step that is not held.
        """
        discount = real_number("discount", discount, 0, 1, rule="must be 0 to 1; 1 adds the rewards up as they are")
        asked = checked_indices(indices)
        is_step = asked != -1
        steps, returns = asked[is_step], np.zeros(asked.shape)
        with self._parts.lock:
            gone = steps[self._parts.timeline.places(steps)[0] < 0]
            if gone.size:
                raise NothingToSampleError(
                    f"step {gone[0]} is not held: it has gone or never was; ask before more is appended"
                )
            returns[is_step] = self._parts.timeline.returns_to_go(steps, discount)
        return returns

    def get(self, indices: npt.ArrayLike) -> Batch:
        """Give exactly the transitions with these indices (as ``Batch.index`` gives them), all with weight 1.

        Raises ``NothingToSampleError`` for one that is not held, ``InvalidSettingsError`` for what are no integers with
        one axis.
        """
        return self._gathering.chosen(checked_indices(indices, most_axes=1))

    def steps_from(self, indices: npt.ArrayLike, length: int = 1) -> HeldSteps:
        """Give what ``length`` steps from each of ``indices``, ``(B,)``, on carry; no frame is unpacked.

        They are single steps, whatever ``n_step`` is, and end with their episode or with the newest step. Raises
        ``NothingToSampleError`` for a step that is not held.
        """
        return held_steps(self._parts, checked_indices(indices, most_axes=1), length)

    def sampleable_indices(self) -> npt.NDArray[np.int64]:
        """Give the index of every transition that may be drawn, oldest first."""
        with self._parts.lock:
            return self._parts.timeline.held_indices()

    def episodes(self) -> Iterator[HeldEpisode]:
        """Give what is held episode by episode, stream by stream; frames are read when they are asked for.

        Nothing may be appended to a full memory meanwhile: ``NothingToSampleError``.
        """
        return held_episodes(self._parts)


def checked_batch_size(batch_size: int) -> int:
    """Give ``batch_size`` as an ``int``; ``InvalidSettingsError`` unless it is a whole number of at least 1."""
    return whole_number("batch_size", batch_size, 1, rule="a batch has at least 1 transition")
