"""A packed state is equal after packing and unpacking, without pickle."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framestow.errors import InvalidSettingsError
from framestow.training.checkpoint import pack_state, unpack_state

# What UTF-8 can encode: that is without surrogates. Hypothesis takes two seconds to find it for its default.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS | st.binary()
STATES = st.dictionaries(
    TEXTS,
    st.recursive(LEAVES, lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(TEXTS, inner)),
)


@given(STATES)
@settings(max_examples=20, deadline=None)
def test_a_nested_state_is_equal_after_packing_and_unpacking(state: dict[str, Any]) -> None:
    assert unpack_state(pack_state(state)) == state


def test_arrays_keep_dtype_and_shape_and_numpy_scalars_become_numbers() -> None:
    arrays = {
        "frames": np.arange(24, dtype=np.uint8).reshape(2, 3, 4),
        "none": np.zeros((0, 3), np.float32),
        "flags": np.array([True, False]),
        "turned": np.arange(6).reshape(2, 3).T,
        "one": np.array(0.5, np.float16),
    }

    state = unpack_state(pack_state({"arrays": arrays, "scalar": np.int64(7)}))

    assert state["scalar"] == 7
    assert type(state["scalar"]) is int
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, state["arrays"][name])
        assert state["arrays"][name].dtype == array.dtype


def test_a_restored_generator_draws_the_same_numbers() -> None:
    generator, other = np.random.default_rng(1), np.random.default_rng(2)
    generator.random(5)

    other.bit_generator.state = unpack_state(pack_state({"state": generator.bit_generator.state}))["state"]

    np.testing.assert_array_equal(generator.random(9), other.random(9))


@pytest.mark.parametrize("value", [object(), {1: 2}, np.array([object()]), np.array(["a"]), {"deep": [set()]}])
def test_other_values_are_refused_with_their_place(value: Any) -> None:
    with pytest.raises(InvalidSettingsError, match=r"^state\.thing"):
        pack_state({"thing": value})


def test_bytes_that_are_no_state_are_refused() -> None:
    packed = pack_state({"a": np.arange(9)})
    for damaged in (b"", b"PK", packed[:-30]):
        with pytest.raises(ValueError, match=r"its header ends at byte|not a file of tensors"):
            unpack_state(damaged)
