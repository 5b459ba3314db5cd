"""Named arrays in one file: written as an .npz, read without believing what it says about itself."""

from __future__ import annotations

import io
import math
import zipfile
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.errors import DamagedDataError

Arrays = dict[str, npt.NDArray[Any]]
SUFFIX = ".npy"  # of each array's name inside the file


def pack_arrays(arrays: Arrays) -> bytes:
    """Bytes of an uncompressed .npz file that holds ``arrays``, which must not hold Python objects.

    >>> unpack_arrays(pack_arrays({"rewards": np.array([0.5, 2.0])}), "state.npz")
    {'rewards': array([0.5, 2. ])}
    """
    stored = io.BytesIO()
    try:
        np.savez(stored, **arrays)  # type: ignore[arg-type]
    except ValueError as error:
        # Ctrl-C within an array: then the archive cannot be closed, and what it raises hides KeyboardInterrupt.
        raise error.__context__ or error from None
    return stored.getvalue()


def unpack_arrays(stored: bytes, name: str) -> Arrays:
    """Give the arrays that ``stored``, the bytes of the file ``name``, holds; they are read-only.

    Nothing is unpickled, nothing is inflated, and no array is larger than the bytes that stand there for it, whatever
    the headers say: so no more than twice the file's size is taken. Raises ``DamagedDataError`` naming the file for
    anything else.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(stored)) as archive:
            members = archive.infolist()
            if any(member.compress_type != zipfile.ZIP_STORED for member in members):
                raise ValueError("its arrays are compressed")
            if sum(member.file_size for member in members) > len(stored):
                raise ValueError("its arrays are larger than it is")
            return {member.filename.removesuffix(SUFFIX): _array_of(archive.read(member)) for member in members}
    except Exception as error:  # what a parser raises for wrong bytes is up to the bytes
        raise DamagedDataError(
            f"{name}: it does not hold arrays as they are written ({error}); take an older save"
        ) from error


def _array_of(content: bytes) -> npt.NDArray[Any]:
    header = io.BytesIO(content)
    if np.lib.format.read_magic(header) != (1, 0):
        raise ValueError("an array has a header of another version")
    shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(header)
    start = header.tell()
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != len(content) - start:
        raise ValueError(f"an array of {dtype} and shape {shape} does not have {len(content) - start} bytes")
    return np.frombuffer(content, dtype, math.prod(shape), start).reshape(shape, order="F" if is_fortran else "C")
