"""The block table equals a dict, in a tenth of its bytes."""

from __future__ import annotations

import numpy as np

from framestow.storage.files.block_format import BlockKey, BlockTable, Row


def test_a_table_equals_a_dict_after_random_puts_and_removals() -> None:
    random = np.random.default_rng(0)
    table, oracle = BlockTable(), {}
    for step in range(20_000):
        key = BlockKey(int(random.integers(5)), int(random.integers(600)))
        if random.random() < 0.7:
            row = Row(step % 7, step, step % 100, step % 3, step)
            table.put(key, row)
            oracle[key] = row
        else:
            table.remove(key)
            oracle.pop(key, None)
        assert oracle.get(key) == table.get(key)

    assert sorted(oracle) == list(table.keys())
    assert len(oracle) == len(table)
    assert all(row == table.get(key) for key, row in oracle.items())
    assert sorted((row, key) for key, row in oracle.items() if row.file == 3) == [
        (row, key) for key, row in table.in_file(3)
    ]


def test_a_block_costs_at_most_forty_bytes() -> None:
    table = BlockTable()
    for number in range(50_000):
        table.put(BlockKey(number % 8, number), Row(0, number, 1))

    assert table.nbytes + 300 * 50_000 / 64 <= 40 * 50_000
    assert len(table) == 50_000
