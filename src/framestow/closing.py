"""``Closing``, the base class of objects that a ``with`` block closes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self


class Closing(ABC):
    """An object with a method ``close``, which a ``with`` block calls at its end."""

    @abstractmethod
    def close(self) -> None:
        """Close the object. Closing again does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
