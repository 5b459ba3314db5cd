"""The figures of a page are found by the words around them, compared with the results, and replaced."""

from __future__ import annotations

import pytest

from figures import figure, plain, renewed, spread, table

SENTENCE = f"It takes {figure(1234.4)} bytes a step, {spread([2.04, 3.1], '.1f')} times the copy"


@pytest.mark.parametrize(
    "page",
    ["It takes 7 bytes a step, 1.0 to 2 times the copy.", "It takes 7\nbytes a  step, 1.0 to\n2 times\nthe copy."],
)
def test_new_figures_replace_the_old_ones_and_nothing_else_changes(page):
    text, wrong = renewed(f"Before. {page} Then 8 bytes.", [SENTENCE])

    expected = (
        page.replace("7", "1,234", 1).replace("1.0", "2.0", 1).replace("2 times", "3.1 times").replace("2\n", "3.1\n")
    )
    assert f"Before. {expected} Then 8 bytes." == text
    assert [f"is stale, the results say: {plain(SENTENCE)}"] == wrong
    assert (text, []) == renewed(text, [SENTENCE])


@pytest.mark.parametrize(("page", "times"), [("It takes 7 bytes a step.", 0), (f"{plain(SENTENCE)}. " * 2, 2)])
def test_a_sentence_that_a_page_lacks_or_has_twice_is_named_and_nothing_is_changed(page, times):
    assert (page, [f"found {times} times, must be once: {plain(SENTENCE)}"]) == renewed(page, [SENTENCE])


def test_a_name_may_be_a_figure_too():
    text, wrong = renewed(
        "The slowest is TorchRL (Pong).", [f"The slowest is {figure('Stable-Baselines3')} ({figure('Breakout')})"]
    )

    assert "The slowest is Stable-Baselines3 (Breakout)." == text
    assert 1 == len(wrong)


def test_a_table_is_replaced_as_a_whole_wherever_its_columns_are_aligned():
    one = table(["game", "µs"], [["Pong, 12 MiB", "1"], ["Breakout", "2"]])
    other = table(["game", "µs"], [["Enduro", "3"]])
    old = "| game | µs |\n|---|---|\n| Pong, 3.5 MiB | 7 |\n| Qbert | 9 |"

    text, wrong = renewed(f"{old}\n\nThen\n\n{other}\n", [one, other])

    assert f"{one}\n\nThen\n\n{other}\n" == text
    assert [f"is stale, the results say: {one}"] == wrong
