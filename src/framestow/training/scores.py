"""Scores of several runs: human-normalised, averaged as Agarwal et al. 2021 advise, and beside published ones.

Needs only NumPy. ``scores`` below has one row per game, and a row has one score per run (seed); rows may differ in
length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from framestow.checks import whole_number
from framestow.errors import InvalidSettingsError

FRAMES_PER_STEP = 4  # emulator frames per agent step, in every source below
NUM_RESAMPLES = 10_000  # of a bootstrap interval

RANDOM_AND_HUMAN: Mapping[str, tuple[float, float]] = {
    "Alien": (227.8, 7127.7),
    "Amidar": (5.8, 1719.5),
    "Assault": (222.4, 742.0),
    "Asterix": (210.0, 8503.3),
    "Asteroids": (719.1, 47388.7),
    "Atlantis": (12850.0, 29028.1),
    "BankHeist": (14.2, 753.1),
    "BattleZone": (2360.0, 37187.5),
    "BeamRider": (363.9, 16926.5),
    "Berzerk": (123.7, 2630.4),
    "Bowling": (23.1, 160.7),
    "Boxing": (0.1, 12.1),
    "Breakout": (1.7, 30.5),
    "Centipede": (2090.9, 12017.0),
    "ChopperCommand": (811.0, 7387.8),
    "CrazyClimber": (10780.5, 35829.4),
    "Defender": (2874.5, 18688.9),
    "DemonAttack": (152.1, 1971.0),
    "DoubleDunk": (-18.6, -16.4),
    "Enduro": (0.0, 860.5),
    "FishingDerby": (-91.7, -38.7),
    "Freeway": (0.0, 29.6),
    "Frostbite": (65.2, 4334.7),
    "Gopher": (257.6, 2412.5),
    "Gravitar": (173.0, 3351.4),
    "Hero": (1027.0, 30826.4),
    "IceHockey": (-11.2, 0.9),
    "Jamesbond": (29.0, 302.8),
    "Kangaroo": (52.0, 3035.0),
    "Krull": (1598.0, 2665.5),
    "KungFuMaster": (258.5, 22736.3),
    "MontezumaRevenge": (0.0, 4753.3),
    "MsPacman": (307.3, 6951.6),
    "NameThisGame": (2292.3, 8049.0),
    "Phoenix": (761.4, 7242.6),
    "Pitfall": (-229.4, 6463.7),
    "Pong": (-20.7, 14.6),
    "PrivateEye": (24.9, 69571.3),
    "Qbert": (163.9, 13455.0),
    "Riverraid": (1338.5, 17118.0),
    "RoadRunner": (11.5, 7845.0),
    "Robotank": (2.2, 11.9),
    "Seaquest": (68.4, 42054.7),
    "Skiing": (-17098.1, -4336.9),
    "Solaris": (1236.3, 12326.7),
    "SpaceInvaders": (148.0, 1668.7),
    "StarGunner": (664.0, 10250.0),
    "Surround": (-10.0, 6.5),
    "Tennis": (-23.8, -8.3),
    "TimePilot": (3568.0, 5229.2),
    "Tutankham": (11.4, 167.6),
    "UpNDown": (533.4, 11693.2),
    "Venture": (0.0, 1187.5),
    "VideoPinball": (16256.9, 17667.9),
    "WizardOfWor": (563.5, 4756.5),
    "YarsRevenge": (3092.9, 54576.9),
    "Zaxxon": (32.5, 9173.3),
}
"""Mean scores of random play and of a human tester in 57 games, by the name that ``games.title`` gives.

Source: google-deepmind/dqn_zoo, ``dqn_zoo/atari_data.py``. Measured without sticky actions: a game begins with 1 to 30
no-ops and is cut after 108,000 emulator frames.
"""


def random_and_human_scores(game: str) -> str | None:
    """Return the scores of random play and of humans as words; ``None`` for a game outside the table.

    >>> random_and_human_scores("Breakout")
    'random play 1.7, human 30.5'
    """
    return "random play {:g}, human {:g}".format(*RANDOM_AND_HUMAN[game]) if game in RANDOM_AND_HUMAN else None


def human_normalized(game: str, score: float) -> float | None:
    """Return ``score`` on the scale on which random play has 0 and the human tester 1.

    Returns ``None`` for a game that the table does not have.

    >>> from framestow.training.scores import human_normalized
    >>> human_normalized("Breakout", 30.5)
    1.0
    """
    if game not in RANDOM_AND_HUMAN:
        return None
    random, human = RANDOM_AND_HUMAN[game]
    return (score - random) / (human - random)


def interquartile_mean(scores: Sequence[ArrayLike]) -> float:
    """Return the mean of the middle half of all scores of all games.

    A quarter of the scores, rounded down, is cut off at either end.

    >>> from framestow.training.scores import interquartile_mean
    >>> interquartile_mean([[0.0, 1.0, 2.0, 9.0]])
    1.5
    """
    ordered = np.sort(np.concatenate(_rows(scores)))
    num_cut = len(ordered) // 4
    return float(ordered[num_cut : len(ordered) - num_cut].mean())


def mean_of_games(scores: Sequence[ArrayLike]) -> float:
    """Return the mean over the games of each game's mean score.

    >>> mean_of_games([[0.0, 2.0], [3.0, 5.0], [10.0, 10.0]])
    5.0
    """
    return float(np.mean([row.mean() for row in _rows(scores)]))


def bootstrap_interval(
    average: Callable[[Sequence[ArrayLike]], float],
    scores: Sequence[ArrayLike],
    num_resamples: int = NUM_RESAMPLES,
    seed: int = 0,
) -> tuple[float, float]:
    """Return the 95 % interval of an average by stratified bootstrap: the runs of each game are resampled.

    Arguments:
        average: One of the functions above, or another one of ``scores``.
        scores: One row per game.
        num_resamples: Number of resampled tables; the interval goes from their 2.5 % to their 97.5 % quantile.
        seed: The same seed gives the same interval.
    """
    whole_number("num_resamples", num_resamples, 1, rule="it must be at least 1; leave it out for 10,000")
    rows = _rows(scores)
    generator = np.random.default_rng(seed)
    averages = [average([generator.choice(row, len(row)) for row in rows]) for _ in range(num_resamples)]
    low, high = np.quantile(averages, (0.025, 0.975))
    return float(low), float(high)


def averages_of_runs(scores: Sequence[float]) -> dict[str, tuple[float, float, float]]:
    """Return mean, median and interquartile mean of the runs of one game, each with the ends of its 95 % interval."""
    averages: dict[str, Callable[[Sequence[ArrayLike]], float]] = {
        "mean": mean_of_games,
        "median": lambda rows: float(np.median(np.concatenate(_rows(rows)))),
        "interquartile mean": interquartile_mean,
    }
    return {name: (average([scores]), *bootstrap_interval(average, [scores])) for name, average in averages.items()}


def _rows(scores: Sequence[ArrayLike]) -> list[NDArray[np.float64]]:
    rows = [np.asarray(row, np.float64) for row in scores]
    if not rows or any(row.ndim != 1 or row.size == 0 or not np.isfinite(row).all() for row in rows):
        raise InvalidSettingsError(
            f"scores is {scores!r}: it must have one row per game, and a row one finite score per run; put the scores "
            "of a single game into a list"
        )
    return rows


class PublishedScores(NamedTuple):
    """Scores that one agent has reached in several games, and how they were measured."""

    agent: str
    agent_steps: int
    scores: Mapping[str, float]  # by game
    protocol: str  # rules of the games, and how the score was computed
    source: str

    @property
    def emulator_frames(self) -> int:
        """Emulator frames of the training."""
        return FRAMES_PER_STEP * self.agent_steps


def published_scores(game: str) -> list[PublishedScores]:
    """Return the entries of ``PUBLISHED`` that have a score in ``game``, those of the shortest training first."""
    return sorted((entry for entry in PUBLISHED if game in entry.scores), key=lambda entry: entry.agent_steps)


_DOPAMINE_GAMES = (  # in the order of the scores below
    *("Pong", "Breakout", "MsPacman", "Seaquest", "Qbert", "BattleZone", "DoubleDunk", "NameThisGame", "Phoenix"),
)


def _dopamine(agent: str, agent_steps: int, *scores: float) -> PublishedScores:
    return PublishedScores(
        agent=f"Dopamine, {agent}",
        agent_steps=agent_steps,
        scores=dict(zip(_DOPAMINE_GAMES, scores, strict=True)),
        protocol="sticky actions 0.25, lost lives ignored, minimal actions; mean score of the training games in the "
        "250,000 steps before, 5 seeds",
        source="google/dopamine, baselines/atari/data",
    )


PUBLISHED: tuple[PublishedScores, ...] = (
    _dopamine("DQN (Nature)", 2_500_000, -4.9, 21.5, 2187.2, 299.6, 1658.4, 3598.5, -18.9, 4000.9, 4948.5),
    _dopamine("DQN (Nature)", 10_000_000, 10.0, 81.7, 2446.5, 1399.2, 6923.0, 11977.6, -18.0, 5236.9, 4819.6),
    _dopamine("DQN (Adam)", 2_500_000, 6.3, 46.9, 2074.1, 875.7, 1495.0, 18594.1, -18.3, 5553.2, 3963.1),
    _dopamine("DQN (Adam)", 10_000_000, 18.1, 103.7, 2664.3, 3969.8, 8656.9, 24491.1, -10.3, 4748.4, 5901.2),
    _dopamine("QR-DQN", 2_500_000, 15.2, 31.9, 2240.1, 2707.1, 4124.4, 22303.6, -13.4, 6806.1, 4260.7),
    _dopamine("QR-DQN", 10_000_000, 19.0, 32.3, 2977.1, 4210.2, 13211.0, 22850.9, 1.0, 4789.3, 4290.6),
    _dopamine("Rainbow", 2_500_000, 15.2, 41.9, 2347.5, 1641.1, 5353.9, 20209.1, -18.9, 8604.0, 4830.2),
    _dopamine("Rainbow", 10_000_000, 19.3, 47.7, 3058.9, 3131.8, 15751.1, 30467.3, 14.8, 8402.8, 7501.9),
    _dopamine("IQN", 2_500_000, 15.2, 102.7, 2523.9, 4410.7, 5206.9, 24151.9, -12.9, 8643.8, 4753.1),
    _dopamine("IQN", 10_000_000, 19.6, 90.4, 4402.5, 16527.8, 12999.2, 27196.1, 19.5, 8169.7, 4962.6),
    PublishedScores(
        agent="Stable-Baselines3 zoo, DQN",
        agent_steps=10_000_000,
        scores={"Pong": 20.6, "Breakout": 358.3, "MsPacman": 2683.0, "Seaquest": 2000.3, "Qbert": 9496.8},
        protocol="no sticky actions, minimal actions, a lost life ends a training episode; the trained agent plays "
        "about 600,000 emulator frames, 1 seed",
        source="DLR-RM/rl-baselines3-zoo, benchmark.md",
    ),
    PublishedScores(
        agent="CleanRL, dqn_atari",
        agent_steps=10_000_000,
        scores={"Pong": 20.25, "Breakout": 366.9, "MsPacman": 2109.0},
        protocol="no sticky actions, minimal actions, a lost life ends a training episode; last training games, "
        "3 seeds",
        source="vwxyzjn/cleanrl, docs/rl-algorithms/dqn.md and rainbow.md",
    ),
    PublishedScores(
        agent="rlcode, DQN on a MacBook Pro M3",
        agent_steps=10_000_000,
        scores={"Breakout": 93.5},
        protocol="sticky actions 0.25, mean score, 1 seed, about 9 hours",
        source="rlcode/reinforcement-learning, README",
    ),
    PublishedScores(
        agent="DQN of Mnih et al. 2015",
        agent_steps=50_000_000,
        scores={"Pong": 18.9, "Breakout": 401.2, "MsPacman": 2311.0, "Seaquest": 5286.0, "Qbert": 10596.0},
        protocol="nature: 30 games, up to 30 no-ops, epsilon 0.05, at most 5 minutes; the best network of 1 seed",
        source="Mnih et al. 2015, Human-level control through deep reinforcement learning",
    ),
)
"""Published scores of DQN-family agents, each with its own protocol: compare only where the protocols agree."""
