"""Figures such as a run gives, for what shows them."""

from framestow.benchmarking.measurement import BenchFigures, LeftOut, SystemFigures


def some_figures() -> BenchFigures:
    """Nine systems, two of them at nearly the same point."""
    systems = (
        SystemFigures("framestow, packed", "", "0.1.0", "", 1_000_000, 51.6, 148.0, 11.2),
        SystemFigures("framestow, raw", "", "0.1.0", "", 140_000, 7_068.0, 160.0, 9.8),
        SystemFigures(
            "Stable-Baselines3", "optimize_memory_usage", "2.9.2", "truncation", 34_000, 28_240.0, 264.0, 40.0, 1
        ),
        SystemFigures("Tianshou", "stack_num", "2.0.1", "", 140_000, 7_100.0, 289.0, 61.0),
        SystemFigures("LazyFrames in a list", "np.stack", "", "", 130_000, 7_350.0, 292.0, 8.0),
        SystemFigures("sb3-extra-buffers, halved", "lz4", "0.5.0", "truncation", 70_000, 701.0, 530.0, 250.0, 2),
    )
    return BenchFigures(
        game="Breakout",
        preset="machado2018",
        frame_shape=(84, 84),
        stack=4,
        batch_size=32,
        threads=2,
        frames_played=20_000,
        rounds=200,
        seed=0,
        bare_copy=SystemFigures("bare NumPy copy", "", "", "", 608_000, 7_056, 98.0, None),
        systems=systems,
        left_out=(LeftOut("cpprb", "TypeError: no such argument"),),
        append_us_of_8_envs=4.1,
    )
