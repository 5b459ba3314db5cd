"""Print the tests of a file, for ``make quick FILE=src/framestow/replay/samplers/uniform.py``.

python tests/find_tests.py src/framestow/replay/samplers/uniform.py
"""

from __future__ import annotations

import sys
from pathlib import Path, PurePosixPath

REPO = Path(__file__).parents[1]
SOURCES = "src/framestow"

# The tests of files that have no tests of their name, and none in a folder of theirs, by the beginning of the path. The
# longest beginning counts. Each row takes less than a minute.
TABLE = {
    "__init__.py": ["architecture/test_public_face.py"],
    "__main__.py": ["cli/test_command_line.py"],
    "checks.py": ["replay/test_refused_settings.py"],
    "errors.py": ["architecture/test_error_messages.py"],
    "interface.py": ["replay/test_representations.py", "architecture/test_public_face.py"],
    "jax.py": ["tensors/test_jax.py"],
    "torch": ["tensors"],
    "_core": ["core"],
    "_core/area_shrinker": ["envs/atari/test_screen.py", "frames/test_preprocessing.py"],
    "_core/bindings/join_frames": ["replay/test_add.py"],
    "_core/bindings/palette_screen": ["envs/atari/test_screen.py"],
    "_core/bindings/pixel_floats": ["replay/test_any_frames.py"],
    "_core/bindings/priorities": ["core/test_priorities.py", "replay/samplers/test_prioritized.py"],
    "_core/bindings/steps": ["core/test_step_ring.py", "replay/steps"],
    "_core/packings": ["frames/test_codec.py", "core/test_random_frame_sequences.py"],
    "_core/palette_screen": ["envs/atari/test_screen.py"],
    "_core/pixel_floats": ["replay/test_any_frames.py"],
    "_core/priorities": ["core/test_priorities.py", "replay/samplers/test_prioritized.py"],
    "_core/scaled_frames": ["storage/test_scaled_frames.py"],
    "_core/segment": ["frames/test_codec.py", "storage"],
    "_core/step_": ["core/test_step_ring.py", "replay/steps"],
    "_core/sum_tree": ["core/test_priorities.py"],
    "_core/unstacking": ["replay/test_add.py"],
    "cli": ["cli/test_printing.py", "cli/test_command_line.py"],
    "cli/check.py": ["cli/test_verify_and_repair.py"],
    "cli/data.py": ["cli/test_offline_data.py"],
    "cli/saved_memory.py": ["cli/test_inspect.py"],
    "cli/training_session.py": ["cli/test_memory_expectation.py", "training/test_listeners.py"],
    "cli/view.py": ["viewer/test_page.py"],
    "integrations/classic": [
        "integrations/libraries/test_berkeley_replay_buffer.py",
        "integrations/libraries/test_memory_efficient_atari_buffer.py",
    ],
    "integrations/cleanrl": ["integrations/libraries/test_cleanrl.py"],
    "integrations/cleanrl/prioritized_buffer.py": ["integrations/libraries/test_cleanrl_prioritized.py"],
    "integrations/gymnasium.py": ["integrations/libraries/test_gymnasium.py"],
    "integrations/stable_baselines3/replay_buffers.py": ["integrations/libraries/test_stable_baselines3_buffer.py"],
    "integrations/stable_baselines3/vec_envs.py": ["integrations/libraries/test_stable_baselines3_vec_envs.py"],
    "integrations/tested_versions.py": ["integrations/drop_in/test_tested_versions.py"],
    "integrations/tianshou": ["integrations/libraries/test_tianshou.py"],
    "integrations/torchrl": ["integrations/libraries/test_torchrl.py", "integrations/libraries/test_torchrl_seams.py"],
    "offline/layouts": ["offline/test_layouts.py", "offline/test_arrays.py"],
    "refusals.py": ["replay/test_refusals.py"],
    "replay/ensemble.py": ["replay/sampling/test_ensemble.py"],
    "replay/forked_draws.py": ["replay/test_process_exit.py"],
    "replay/inner_memory.py": ["replay/test_changed_steps.py", "replay/test_forms_of_a_step.py"],
    "replay/memory.py": ["replay/test_settings_of_a_memory.py", "replay/test_forms_of_a_step.py", "replay/test_add.py"],
    "replay/memory_parts.py": ["replay/test_changed_steps.py", "replay/samplers/test_switched_samplers.py"],
    "replay/reading": ["replay/sampling", "replay/episodes", "replay/test_stored_batches.py"],
    "replay/reports": ["replay/test_facts.py", "replay/test_memory_report.py", "replay/test_label_inspection.py"],
    "replay/reports/observation_report.py": ["replay/test_observation_report.py"],
    "replay/settings": ["replay/test_settings_of_a_memory.py", "replay/test_refused_settings.py"],
    "replay/settings/step_fields.py": ["replay/test_extras.py"],
    "replay/refused_steps.py": ["replay/test_refusals.py", "replay/test_refused_steps.py"],
    "replay/step_checks.py": ["replay/test_refusals.py", "replay/test_forms_of_a_step.py"],
    "replay/step_forms.py": ["replay/test_forms_of_a_step.py", "replay/test_forms_of_an_add.py"],
    "replay/store": ["replay/store/test_saving.py", "replay/store/test_commits.py", "replay/store/test_directory.py"],
    "training/loop.py": ["training/test_interruption.py"],
    "training/playing.py": ["training/test_evaluation.py"],
    "training/recipes.py": ["training/test_settings.py"],
    "training/report": ["training/test_report.py"],
    "training/training_run.py": ["training/test_run.py"],
    "viewer/pages": ["viewer/test_page.py"],
}
# The tests that name what an addition forgot (CONTRIBUTING.md, "How to add"), beside those of the file itself.
OF_ADDITIONS = {
    "_core/packings": ["architecture/test_packings.py"],
    "benchmarking/buffers.py": ["architecture/test_additions.py"],
    "benchmarking/libraries.py": ["architecture/test_additions.py"],
    "envs/atari/atari_env.py": ["architecture/test_additions.py"],
    "integrations/drop_in/memory_options.py": ["integrations/libraries/test_memory_options.py"],
    "offline/layouts": ["architecture/test_additions.py"],
    "replay/memory.py": ["integrations/libraries/test_memory_options.py"],
    "replay/samplers": ["architecture/test_additions.py", "architecture/test_docs.py"],
    "training/listeners.py": ["architecture/test_additions.py"],
}
# Of files elsewhere, by the beginning of their path in the repository.
ELSEWHERE = {
    "src/conftest.py": ["architecture/test_docstrings.py"],
    "docs": ["architecture/test_docs.py"],
    "README.md": ["architecture/test_docs.py"],
    "CONTRIBUTING.md": ["architecture/test_docs.py"],
    "examples": ["examples"],
    "benchmarks": ["benchmarks"],
    "release": ["architecture/test_release.py"],
}


def find_tests_of(file: str) -> list[str]:
    """Return the paths of the tests of ``file``; both are relative to the repository. Empty if there are none.

    >>> find_tests_of("src/framestow/replay/samplers/uniform.py")[0]
    'tests/replay/samplers'
    """
    path = PurePosixPath(file)
    if path.parts[0] == "tests":
        return [file]
    if not path.is_relative_to(SOURCES):
        return _row(file, ELSEWHERE)
    inside = path.relative_to(SOURCES)
    folder = REPO / "tests" / inside.parent
    named = [found.relative_to(REPO).as_posix() for found in sorted(folder.glob(f"test_{inside.stem}*.py"))]
    own_folder = [f"tests/{inside.parent}"] if inside.parent.parts and any(folder.glob("test_*.py")) else []
    # A row names the few tests of a file in a folder that has many; one of the file itself counts before a name.
    tests = (inside.as_posix() not in TABLE and named) or _row(inside.as_posix(), TABLE) or own_folder
    tests = [*tests, *_row(inside.as_posix(), OF_ADDITIONS)] if tests else tests
    has_doctests = path.suffix == ".py" and ">>>" in (REPO / file).read_text(encoding="utf-8")
    return [*tests, file] if tests and has_doctests else tests


def _row(path: str, table: dict[str, list[str]]) -> list[str]:
    beginnings = [beginning for beginning in table if path.startswith(beginning)]
    return [f"tests/{test}" for test in table[max(beginnings, key=len)]] if beginnings else []


if __name__ == "__main__":
    given = Path(sys.argv[1])
    asked = (given.resolve().relative_to(REPO) if given.is_absolute() else given).as_posix()
    if not (REPO / asked).exists():
        sys.exit(f"FILE={asked}: there is no such file; give its path in the repository")
    found_tests = find_tests_of(asked)
    if not found_tests:
        sys.exit(f"FILE={asked}: no tests are known of it; give WHAT=tests/..., or add a row to tests/find_tests.py")
    sys.stdout.write(" ".join(found_tests))
