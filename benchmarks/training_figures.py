"""The figures of training.py: each system's, the profile's, and the table of the page that shows them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from figures import table
from training_profile import PARTS
from training_systems import BARE, CAPACITY, SB3, SYSTEMS
from training_turns import Answer, rate

Round = Mapping[str, Answer]  # each trainer's answer


def row(name: str, quiet: Sequence[Round], busy: Sequence[Round], updates: Sequence[Round]) -> dict[str, Any]:
    """Return a system's figures from the rounds alone, beside a busy process (may be none), and of updates."""
    answers = [each[name] for each in quiet]
    sb3 = quicker_sb3(quiet)
    figures = {
        "note": SYSTEMS[name].note,
        "torch_threads": answers[-1]["torch_threads"],
        "steps_a_second": median_rate(quiet, name),
        "of_each_round": [round(rate(answer), 1) for answer in answers],
        "of_bare_learner": ratio(quiet, name, BARE),
        "of_stable_baselines3": ratio(quiet, name, sb3),
        "update_ms": 1e3 / median_rate(updates, name),
        "cores_used": sum(each["processor_seconds"] for each in answers) / sum(each["seconds"] for each in answers),
        "peak_bytes": answers[-1]["peak_bytes"],
        "peak_bytes_of_a_full_ring": answers[-1]["peak_bytes"] + remaining_growth(answers),
    }
    if busy:
        figures["busy_steps_a_second"] = median_rate(busy, name)
        figures["busy_of_quiet"] = figures["busy_steps_a_second"] / figures["steps_a_second"]
        figures["busy_of_stable_baselines3"] = ratio(busy, name, sb3)
    return figures


def quicker_sb3(rounds: Sequence[Round]) -> str:
    """Return the name of Stable-Baselines3's quicker setting, or nothing if it was not measured."""
    settings = [name for name in rounds[0] if name.startswith(SB3)]
    return max(settings, key=lambda name: median_rate(rounds, name), default="")


def median_rate(rounds: Sequence[Round], name: str) -> float:
    return statistics.median(rate(each[name]) for each in rounds)


def ratio(rounds: Sequence[Round], name: str, other: str) -> float | None:
    """Return how many times the other's rate this one's is, compared round by round; ``None`` without the other."""
    if other not in rounds[0]:
        return None
    return statistics.median(rate(each[name]) / rate(each[other]) for each in rounds)


def remaining_growth(answers: Sequence[Answer]) -> float:
    """Return the bytes that a ring of ``CAPACITY`` transitions still grows, from its growth in the second half."""
    return growth_a_transition(answers) * (CAPACITY - int(answers[-1]["stored_transitions"]))


def growth_a_transition(answers: Sequence[Answer]) -> float:
    """Return how many bytes per transition took in the second half."""
    middle, end = answers[len(answers) // 2 - 1], answers[-1]
    new = end["stored_transitions"] - middle["stored_transitions"]
    return float((end["stored_bytes"] - middle["stored_bytes"]) / new) if new else 0.0


def profile_row(answers: Sequence[Answer]) -> dict[str, Any]:
    """Return the milliseconds that each part takes of an agent step, over all rounds."""
    steps = sum(answer["steps"] for answer in answers)

    def each_ms(key: str) -> dict[str, float]:
        return {
            part: 1e3 * sum(answer[key].get(part, 0.0) for answer in answers) / steps
            for part in PARTS
            if key == "parts" or any(part in answer[key] for answer in answers)
        }

    return {"ms_a_step": each_ms("parts"), "ms_a_step_in_other_threads": each_ms("parts_beside")}


def speed_table(figures: Mapping[str, Any]) -> str:
    heads = ["steps per second", "of the bare learner", "of Stable-Baselines3", "one update, ms"]
    heads = ["trainer", *heads, "cores used", "peak RSS, MiB", "with a full ring"]
    heads += ["steps per second beside a busy process", "of Stable-Baselines3 there"]
    return table(heads, map(speed_cells, figures["systems"].items()))


def speed_cells(system: tuple[str, Mapping[str, Any]]) -> list[str]:
    name, each = system
    bytes_of = (each["peak_bytes"], each["peak_bytes_of_a_full_ring"])
    return [
        name,
        f"{each['steps_a_second']:.1f}",
        times(each["of_bare_learner"]),
        times(each["of_stable_baselines3"]),
        f"{each['update_ms']:.1f}",
        f"{each['cores_used']:.2f}",
        *(f"{nbytes / 2**20:,.0f}" for nbytes in bytes_of),
        f"{each['busy_steps_a_second']:.1f}",
        times(each["busy_of_stable_baselines3"]),
    ]


def times(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
