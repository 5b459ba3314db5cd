"""Stores that were saved before this change are loaded by it."""

from __future__ import annotations

import json

import pytest

from golden.saved_stores import DRAWS_FILE, PLAYS, STORES, draws_of, loaded
from oracles.comparison import assert_memory_is_what_the_oracle_holds


@pytest.mark.parametrize("name", PLAYS)
def test_a_saved_store_holds_what_was_saved_and_draws_what_the_saved_memory_drew(name):
    _, oracle = PLAYS[name]()

    memory = loaded(name)

    assert 1 == memory._settings.n_step
    assert json.loads(DRAWS_FILE.read_text())[name] == draws_of(memory)
    assert_memory_is_what_the_oracle_holds(memory, oracle)


def test_every_play_has_its_store():
    assert set(PLAYS) == {folder.name for folder in STORES.iterdir() if folder.is_dir()}
