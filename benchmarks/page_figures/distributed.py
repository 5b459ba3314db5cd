"""docs/distributed.md."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from figures import ROOT, Pages, figure, result, spread, table

measured, million = result("distributed"), result("million_breakout")
kinds = json.loads((ROOT / "tests" / "distributed.json").read_text(encoding="utf-8"))["kinds"]
subjects, rllib, wire = measured["subjects"], measured["rllib"], measured["bytes_a_step"]
parts = measured["milliseconds_of_a_batch_of_one_shard"]
one_memory, one_shard = subjects["one memory in this process"], subjects["1 shard"]

ACTORS = (16, 64, 256, 1024)
STEPS_OF_AN_ACTOR = 139 / 4  # a second: 139 frames, Horgan et al. 2018
ROWS_A_STEP = 0.78  # that the learner samples, as there
A_BATCH = 512 * 8 * 84 * 84  # bytes of 512 pairs of stacked frames


def short(value: float) -> str:
    """Return a number with two digits at least: 0.7, 7.9, 15."""
    return f"{value:.1f}" if 0 < value < 9.95 else f"{value:,.0f}"


def pair(row: Mapping[str, Any], unit: str, where: str) -> str:
    return f"{short(row[f'processor_{unit}_here'])}, {short(row[f'processor_{unit}_in_{where}'])}"


def subject_rows() -> Iterator[list[str]]:
    rows = list(subjects.values())
    yield ["processor µs a step: here, in shards", *(pair(row, "us_a_step", "shards") for row in rows)]
    yield ["processor ms a batch: here, in shards", *(pair(row, "ms_a_batch", "shards") for row in rows)]
    yield ["steps a second", *(f"{row['steps_a_second']:,.0f}" for row in rows)]
    yield ["batches a second, one at a time", *(f"{row['batches_a_second_one_at_a_time']:.0f}" for row in rows)]
    yield ["batches a second, 4 ahead", *(f"{row['batches_a_second_ahead']:.0f}" for row in rows)]
    yield [
        "ms a batch, median (99 %)",
        *(f"{short(row['batch_ms_median'])} ({row['batch_ms_99']:.0f})" for row in rows),
    ]


def wire_rows() -> Iterator[list[str]]:
    sent = f"{wire['sent']:.1f}, of which frames {wire['of_which_packed_frames']:.1f}"
    yield [f"packed chunk of {wire['frames_in_a_chunk']} frames", sent]
    yield ["the same with raw frames", f"{wire['with_raw_frames']:,.0f}"]
    yield ["with raw stacked pairs", f"{wire['with_raw_stacked_pairs']:,.0f}"]


def part_rows() -> Iterator[list[str]]:
    for name, key, where in (
        ("call and its answer, without rows", "call without rows", "both"),
        ("draw 256 rows and unpack their frames", "shard draws and unpacks", "shard"),
        ("copy the rows into Ray's object store", "rows into the object store", "shard"),
        ("get them as views of the store", "rows out of it, as views", "here"),
        ("make a batch of them", "rows become a batch", "here"),
        ("all of it: `sample(256)`, then `update_priorities`", "whole batch with new priorities", ""),
    ):
        yield [name, f"{parts[key]['median']:.2f} ({parts[key]['least']:.2f})", where]


def rllib_rows() -> Iterator[list[str]]:
    both = (one_shard, rllib)
    rams = (f"{one_shard['bytes_a_transition']:.0f} MB", f"{rllib['bytes_a_transition'] / 1e3:.0f} GB")
    yield ["RAM of a million transitions, extrapolated from what was stored", *rams]
    yield ["batches of 256 a second, one at a time", *(f"{row['batches_a_second_one_at_a_time']:.0f}" for row in both)]
    yield [
        "ms a batch, median (99 %)",
        *(f"{short(row['batch_ms_median'])} ({row['batch_ms_99']:.0f})" for row in both),
    ]
    yield [
        "processor ms a batch: here, in the actor",
        pair(one_shard, "ms_a_batch", "shards"),
        pair(rllib, "ms_a_batch", "actor"),
    ]
    yield ["steps a second", *(f"{row['steps_a_second']:,.0f}" for row in both)]
    yield [
        "processor µs a step: here, in the actor",
        pair(one_shard, "us_a_step", "shards"),
        pair(rllib, "us_a_step", "actor"),
    ]


def size(nbytes: float) -> str:
    factor, unit = next((each for each in ((1e9, "GB"), (1e6, "MB")) if nbytes >= each[0]), (1e3, "KB"))
    return f"{nbytes / factor:.{1 if nbytes / factor < 9.95 else 0}f} {unit}"


def share(seconds: float) -> str:
    """Return processor seconds a second as per cent of a core, with two digits where they are few."""
    percent = 100 * seconds
    return f"{percent:.{2 if percent < 0.095 else 1 if percent < 9.95 else 0}f} %"


def batches_a_second(actors: int) -> float:
    return ROWS_A_STEP * actors * STEPS_OF_AN_ACTOR / 512


def actor_rows() -> Iterator[list[str]]:
    """Yield what the actors of Ape-X need in a second: published rates times what one step or one call takes here."""
    steps = [count * STEPS_OF_AN_ACTOR for count in ACTORS]
    batches = [batches_a_second(count) for count in ACTORS]
    a_step, a_call = measured["processor_microseconds_a_step"], parts["call without rows"]["median"]
    store, pack = a_step["shard_takes_a_packed_chunk"], a_step["actor_collects_and_packs"]
    shard, here = one_shard["processor_ms_a_batch_in_shards"], one_shard["processor_ms_a_batch_here"]
    frames, sent = wire["frames_in_a_chunk"], wire["sent"]
    yield ["steps", "published rate", *(f"{each:,.0f}" for each in steps)]
    yield [
        f"bytes of chunks, all shards (raw: {wire['with_raw_frames']:,.0f} a step)",
        f"{sent:.1f} bytes a step, measured",
        *(size(sent * each) for each in steps),
    ]
    yield ["calls to shards", f"{frames} steps a call, measured", *(f"{each / frames:.0f}" for each in steps)]
    yield [
        "a shard's core for storing",
        f"{store:.2f} µs a step, measured",
        *(share(store * each / 1e6) for each in steps),
    ]
    calls = [share(a_call * each / frames / 1e3) for each in steps]
    yield ["a shard's core for those calls", f"{a_call:.1f} ms a call, measured", *calls]
    yield ["batches of 512", "worked out", *(f"{each:.{0 if each > 50 else 1}f}" for each in batches)]
    yield [
        "bytes of batches",
        f"{A_BATCH / 1e6:.1f} MB a batch, worked out",
        *(size(A_BATCH * each) for each in batches),
    ]
    yield [
        "shards' cores for batches",
        f"{2 * shard:.0f} ms each, twice the measured {shard:.1f} ms of 256",
        *(share(2 * shard * each / 1e3) for each in batches),
    ]
    yield [
        "learner's core for taking them",
        f"{2 * here:.1f} ms each, twice the measured {here:.1f} ms",
        *(share(2 * here * each / 1e3) for each in batches),
    ]
    yield [
        "an actor's core for packing",
        f"{pack:.0f} µs a step, measured",
        *([share(pack * STEPS_OF_AN_ACTOR / 1e6)] * 4),
    ]


def processor_ms(row: Mapping[str, Any]) -> float:
    return float(row["processor_ms_a_batch_here"] + row["processor_ms_a_batch_in_shards"])


def kill_rows() -> Iterator[list[str]]:
    for name, key in (
        ("actor", "actor"),
        ("shard in RAM", "shard_in_ram"),
        ("shard with `directory`, flushed every second", "shard_on_disk"),
        ("node", "node"),
        ("learner, saved every 200 steps", "learner"),
    ):
        row = kinds[key]
        part = row.get("largest_part_of_the_promise_lost")
        yield [
            name,
            str(row["kills"]),
            f"{row['steps_lost_median']:.0f} ({row['steps_lost_most']:,})",
            "-" if part is None else f"{part:.0%}".replace("%", " %"),
            f"{row['seconds_until_back_median']:.1f} ({row['seconds_until_back_most']:.1f})",
        ]


_batches_256, _batches_1024 = (batches_a_second(actors) for actors in (256, 1024))
_percent_for_batches = 100 * _batches_1024 * 2 * one_shard["processor_ms_a_batch_in_shards"] / 1e3

PAGES: Pages = {
    "docs/distributed.md": [
        f"`make distributed` kills each kind {figure(kinds['actor']['kills'])} times with `kill -9`",
        table(
            [
                "killed (`tests/distributed.json`)",
                "kills",
                "steps lost, median (most)",
                "largest part of the bound",
                "seconds until back, median (most)",
            ],
            kill_rows(),
        ),
        f"Every bound held, and {figure(sum(row.get('rows_checked', 0) for row in kinds.values()))} sampled rows were "
        f"checked meanwhile: each was a transition that an actor saw. The kills took "
        f"{figure(sum(row['seconds'] for row in kinds.values()) / 60)} minutes",
        f"Before each round the load was {spread(measured['load_before_each_round'])}, the benchmark's own",
        table(["", "one memory", *list(subjects)[1:]], subject_rows()),
        table(["bytes a step on the wire", ""], wire_rows()),
        f"A batch costs {figure(processor_ms(one_shard) / processor_ms(one_memory))} times the processor time "
        "of one memory",
        f"A batch has {figure(parts['megabytes'], '.1f')} MB of frames",
        table(["part", "ms, median (least)", "where"], part_rows()),
        f"reading them the first time takes {figure(parts['frames are read the first time']['median'], '.1f')} ms",
        f"in fragments of 50 transitions (Ray {figure(rllib['ray'])}, the same run)",
        table(["", "1 shard", "RLlib"], rllib_rows()),
        f"on this machine ({figure(measured['machine']['memory_gib'], '.1f')} GiB)",
        table(["per second", "from", *(f"{count:,}" for count in ACTORS[:-1]), f"{ACTORS[-1]:,} actors"], actor_rows()),
        f"(benchmarks.md#a-million-transitions) take {figure(2 * million['bytes_a_transition'])} MB of RAM",
        f"{figure(A_BATCH * _batches_256 / 1e6)} MB a second for 256 actors is "
        f"{figure(8 * A_BATCH * _batches_256 / 1e9, '.1f')} Gbit/s, for 1,024 actors "
        f"{figure(8 * A_BATCH * _batches_1024 / 1e9, '.1f')} Gbit/s",
        f"at {figure(_batches_1024)} batches of 512 a second it has {figure(1e3 / _batches_1024)} ms for each",
        f"at 1,024 actors they take {figure(_percent_for_batches)} % of a core",
    ],
}
