"""The libraries whose tests run against the drop-ins, and the classes that are replaced."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Suite:
    """Tests of one library.

    ``tests`` are files of the source, or single tests in them. ``replaced`` says what the drop-in for each of the
    library's classes is called in ``drop_in_module``. Where PyPI's source distribution has the tests, ``download`` is
    what to ask it for.
    """

    library: str
    package: str
    drop_in_module: str
    replaced: dict[str, str]
    tests: tuple[str, ...]
    download: str = ""
    modules_with_names: tuple[str, ...] = ()
    """Modules to import first, so that all names of the classes exist."""
    modules_of_workers: tuple[str, ...] = ()
    """Modules that the worker processes of vector environments import."""
    options: tuple[str, ...] = ()
    """Further arguments of pytest."""
    environment: dict[str, str] = field(default_factory=dict)

    def own_name(self, test: str) -> str:
        """Return the name of a test with the library's classes in its parameters, not the drop-ins."""
        for place, drop_in in self.replaced.items():
            test = test.replace(drop_in, place.rpartition(".")[2])
        return test


SUITES = {
    suite.library: suite
    for suite in (
        Suite(
            library="stable-baselines3",
            package="stable_baselines3",
            drop_in_module="framestow.integrations.stable_baselines3",
            replaced={
                "stable_baselines3.common.buffers.ReplayBuffer": "ReplayBuffer",
                "stable_baselines3.common.buffers.DictReplayBuffer": "DictReplayBuffer",
                "stable_baselines3.common.buffers.NStepReplayBuffer": "NStepReplayBuffer",
                "stable_baselines3.common.vec_env.dummy_vec_env.DummyVecEnv": "DummyVecEnv",
                "stable_baselines3.common.vec_env.subproc_vec_env.SubprocVecEnv": "SubprocVecEnv",
            },
            tests=(
                "tests/test_buffers.py",
                "tests/test_n_step_replay.py",
                "tests/test_dict_env.py",
                "tests/test_her.py",
                "tests/test_run.py",
                "tests/test_cnn.py",
                "tests/test_save_load.py",
                "tests/test_vec_normalize.py",
                "tests/test_train_eval_mode.py",
                "tests/test_deterministic.py",
                "tests/test_identity.py",
                "tests/test_spaces.py",
                "tests/test_vec_envs.py",
                "tests/test_vec_check_nan.py",
                "tests/test_vec_extract_dict_obs.py",
                "tests/test_vec_monitor.py",
                "tests/test_vec_stacked_obs.py",
                "tests/test_monitor.py",
                "tests/test_envs.py",
                "tests/test_callbacks.py",
            ),
            download="stable-baselines3==2.9.2",
            modules_with_names=("stable_baselines3",),
            modules_of_workers=("stable_baselines3",),
            options=("-m", "not expensive"),
        ),
        Suite(
            library="tianshou",
            package="tianshou",
            drop_in_module="framestow.integrations.tianshou",
            replaced={
                "tianshou.data.ReplayBuffer": "ReplayBuffer",
                "tianshou.data.VectorReplayBuffer": "VectorReplayBuffer",
                "tianshou.data.PrioritizedReplayBuffer": "PrioritizedReplayBuffer",
                "tianshou.data.PrioritizedVectorReplayBuffer": "PrioritizedVectorReplayBuffer",
            },
            tests=("test/base/test_buffer.py",),
            modules_with_names=("tianshou.data",),
        ),
        Suite(
            library="torchrl",
            package="torchrl",
            drop_in_module="framestow.integrations.torchrl",
            replaced={"torchrl.data.replay_buffers.storages.LazyTensorStorage": "FramestowStorage"},
            tests=("test/rb/test_storages.py", "test/rb/test_writers.py", "test/rb/test_rb_core.py"),
            modules_with_names=("torchrl.data", "torchrl.data.replay_buffers"),
            options=("-k", "(LazyTensorStorage or FramestowStorage) and not multiprocess"),
        ),
    )
}
