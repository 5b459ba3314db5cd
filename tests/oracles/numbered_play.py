"""A play whose frames carry their own position, so that any mix-up shows."""

import numpy as np

from framestow.benchmarking.play import Play


def numbered_play(episode_lengths: tuple[int, ...] = (1, 2, 7, 30, 3), frame_shape: tuple[int, ...] = (6, 5)) -> Play:
    """Episodes of so many transitions; every second one terminates, the others are truncated.

    Frame ``p`` is filled with ``p % 251`` and has ``p // 251`` in its first pixel.
    """
    starts, positions, terminated, truncated = [], [], [], []
    for episode, length in enumerate(episode_lengths):
        first = len(starts)
        starts += [first] * (length + 1)
        positions += range(first, first + length)
        terminated += [False] * (length - 1) + [episode % 2 == 0]
        truncated += [False] * (length - 1) + [episode % 2 == 1]
    frames = np.empty((len(starts), *frame_shape), np.uint8)
    for position, frame in enumerate(frames):
        frame[:] = position % 251
        frame.flat[0] = position // 251
    return Play(
        game="Numbers",
        num_actions=3,
        frames=frames,
        episode_starts=np.array(starts),
        positions=np.array(positions),
        actions=np.arange(len(positions)) % 3,
        terminated=np.array(terminated),
        truncated=np.array(truncated),
    )
