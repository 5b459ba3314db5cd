"""Times are taken in turn."""

from framestow.benchmarking.timing import interleaved_medians


def test_every_candidate_has_its_calls_in_every_round_and_warming_up_is_not_counted():
    called: list[str] = []
    candidates = {name: lambda name=name: called.append(name) for name in ("one", "two")}

    medians = interleaved_medians(candidates, rounds=3, calls=2, warmup_rounds=1)

    assert ["one", "one", "two", "two"] * 4 == called
    assert {"one", "two"} == set(medians)
    assert all(median > 0 for median in medians.values())
