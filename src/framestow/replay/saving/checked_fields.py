"""Values of a manifest, each checked before anything is built from it."""

from __future__ import annotations

from typing import Any

from framestow.errors import DamagedDataError


class CheckedFields:
    """The fields of one JSON object of a file; whoever asks for one says what it must be.

    Raises ``DamagedDataError`` naming the file and the field for anything else.

    >>> fields = CheckedFields({"frames": {"bytes": -1}}, "MANIFEST.000001")
    >>> fields.inner("frames").integer("bytes")
    Traceback (most recent call last):
    ...
    framestow.errors.DamagedDataError: MANIFEST.000001: frames.bytes is -1: it must be an integer from 0 to ...
    """

    def __init__(self, values: Any, file: str, place: str = "") -> None:
        if not isinstance(values, dict):
            raise DamagedDataError(f"{file}: {place or 'it'} is {_shown(values)}: it must hold named fields; {WAY_OUT}")
        self.values: dict[str, Any] = values
        self._file, self._place = file, place

    def inner(self, name: str) -> CheckedFields:
        """Give the fields of the object that field ``name`` is."""
        return CheckedFields(self.values.get(name), self._file, self._path(name))

    def integer(self, name: str, low: int = 0, high: int = 2**62) -> int:
        """Give field ``name``, an integer from ``low`` to ``high``."""
        value = self.values.get(name)
        if type(value) is not int or not low <= value <= high:
            raise self._refused(name, f"an integer from {low} to {high}")
        return value

    def integers(self, name: str, count: int | None = None) -> list[int]:
        """Give field ``name``, a list of integers from 0 on, of ``count`` if that is given."""
        value: list[int] = self.values.get(name)  # type: ignore[assignment]  # as the next line checks
        is_list = isinstance(value, list) and all(type(one) is int and one >= 0 for one in value)
        if not is_list or count not in (None, len(value)):
            raise self._refused(name, f"a list of {'' if count is None else f'{count} '}integers from 0 on")
        return value

    def each(self, name: str) -> list[CheckedFields]:
        """Give the fields of each object of the list that field ``name`` is."""
        value = self.values.get(name)
        if not isinstance(value, list):
            raise self._refused(name, "a list")
        return [CheckedFields(one, self._file, f"{self._path(name)}[{place}]") for place, one in enumerate(value)]

    def number(self, name: str) -> float:
        """Give field ``name``, a number."""
        value = self.values.get(name)
        if type(value) not in (int, float):
            raise self._refused(name, "a number")
        return float(self.values[name])

    def boolean(self, name: str) -> bool:
        """Give field ``name``, true or false."""
        value = self.values.get(name)
        if not isinstance(value, bool):
            raise self._refused(name, "true or false")
        return value

    def text(self, name: str) -> str:
        """Give field ``name``, a string."""
        value = self.values.get(name)
        if not isinstance(value, str):
            raise self._refused(name, "a string")
        return value

    def file_name(self, name: str) -> str:
        """Give field ``name``, the name of a file in the same folder."""
        value = self.text(name)
        if not value or "/" in value or "\\" in value or "\0" in value or value in (".", ".."):
            raise self._refused(name, "the name of a file beside it")
        return value

    def _path(self, name: str) -> str:
        return f"{self._place}.{name}" if self._place else name

    def _refused(self, name: str, rule: str) -> DamagedDataError:
        shown = _shown(self.values.get(name)) if name in self.values else "missing"
        return DamagedDataError(f"{self._file}: {self._path(name)} is {shown}: it must be {rule}; {WAY_OUT}")


WAY_OUT = "take an older save"
SHOWN = 60  # characters of a value that a message shows


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else text[:SHOWN] + "..."
