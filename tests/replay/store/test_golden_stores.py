"""Stores saved by earlier versions load unchanged."""

from __future__ import annotations

import json

import pytest

from golden.saved_stores import DRAWS_FILE, PLAYS, STORES, draws_of, loaded
from oracles.comparison import assert_memory_is_what_the_oracle_holds


@pytest.mark.parametrize("name", PLAYS)
def test_a_golden_store_loads_and_samples_as_when_it_was_saved(name):
    _, oracle = PLAYS[name]()

    memory = loaded(name)

    assert 1 == memory._settings.n_step
    assert json.loads(DRAWS_FILE.read_text())[name] == draws_of(memory)
    assert_memory_is_what_the_oracle_holds(memory, oracle)


def test_every_golden_play_has_a_store():
    assert set(PLAYS) == {folder.name for folder in STORES.iterdir() if folder.is_dir()}
