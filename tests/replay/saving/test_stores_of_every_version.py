"""What any version of framestow saved is loaded by this one."""

from __future__ import annotations

import json

import pytest

from golden.saved_stores import DRAWS_FILE, NEWEST_VERSION, PLAYS, STORES, draws_of, loaded
from oracles.comparison import assert_memory_is_what_the_oracle_holds

VERSIONS = sorted(folder.name for folder in STORES.glob("version_*"))


@pytest.mark.parametrize(
    ("version", "name"),
    [(version, name) for version in VERSIONS for name in PLAYS if (STORES / version / name).is_dir()],
)
def test_a_store_of_any_version_holds_what_was_saved_and_draws_what_the_saved_memory_drew(name, version):
    _, oracle = PLAYS[name]()

    memory = loaded(version, name)

    assert 1 == memory.settings.n_step
    assert json.loads(DRAWS_FILE.read_text())[name] == draws_of(memory)
    assert_memory_is_what_the_oracle_holds(memory, oracle)


def test_every_play_has_its_store_of_the_newest_version():
    assert set(PLAYS) == {folder.name for folder in (STORES / NEWEST_VERSION).iterdir()}
