"""What any version of framestow saved is loaded by this one."""

from __future__ import annotations

import json

import pytest

from framestow.replay.memory import ReplayMemory
from golden.saved_stores import DRAWS_FILE, PLAYS, STORES, draws_of
from oracles.comparison import assert_memory_is_what_the_oracle_holds

VERSIONS = sorted(folder.name for folder in STORES.glob("version_*"))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", PLAYS)
def test_a_store_of_any_version_holds_what_was_saved_and_draws_what_the_saved_memory_drew(name, version):
    _, oracle = PLAYS[name]()

    loaded = ReplayMemory.load(STORES / version / name)

    assert 1 == loaded.settings.n_step
    assert json.loads(DRAWS_FILE.read_text())[name] == draws_of(loaded)
    assert_memory_is_what_the_oracle_holds(loaded, oracle)
