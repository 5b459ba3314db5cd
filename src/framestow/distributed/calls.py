"""``Calls``: call methods of a group of equal objects, such as shards, in this process or in actors of a cluster.

``framestow.distributed.ray_actors`` has the calls to Ray actors. ``LocalCalls`` runs everything in this process, for
tests and to debug a program without a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from framestow.errors import ActorLostError

START_S = 600.0  # until an object that is started counts as hanging: on a busy machine its process imports for minutes


class Calls(Protocol):
    """Calls to a group of objects, by number. A call returns a handle at once; ``result`` waits for its answer.

    An object that dies is rebuilt from its arguments. Calls in flight then raise ``ActorLostError``, whether they were
    executed or not. Calls of one caller to one object are executed in order.
    """

    @property
    def num_objects(self) -> int:
        """Number of objects."""

    def call(self, number: int, method: str, *arguments: Any) -> Any:
        """Call a method of an object and return a handle."""

    def result(self, handle: Any, timeout_s: float) -> Any:
        """Wait for the answer and return it.

        Raises:
            ActorLostError: the object died or did not answer in time.
            Exception: what the method raised.
        """

    def wait(self, handles: Sequence[Any], timeout_s: float = 0.0) -> list[Any]:
        """Return the handles that have an answer, after waiting up to ``timeout_s`` for the first."""

    def share(self, value: Any) -> Any:
        """Return an argument for many calls that stands for ``value``, which is sent once to each machine."""

    def replace(self, number: int) -> None:
        """End an object that hangs; it is rebuilt."""

    def close(self) -> None:
        """End all objects."""


class LocalCalls:
    """Calls to objects in this process; each is executed at once, in the caller's thread.

    >>> calls = LocalCalls([lambda num_restarts: [3, 4]])
    >>> calls.result(calls.call(0, "index", 4), timeout_s=1.0)
    1

    Each of ``makes`` returns an object, given how often it was rebuilt.
    """

    def __init__(self, makes: Sequence[Callable[[int], Any]]) -> None:
        self._makes = makes
        self._restarts = [0] * len(makes)  # by object: how often it was rebuilt
        self.objects: list[Any] = [make(0) for make in makes]
        self.down: set[int] = set()
        """Objects that raise ``ActorLostError`` for every call until they are removed from this set."""

    @property
    def num_objects(self) -> int:
        """Number of objects."""
        return len(self.objects)

    def call(self, number: int, method: str, *arguments: Any) -> Any:
        """Execute the call and return its answer or its error as a handle."""
        if number in self.down:
            return None, ActorLostError(f"object {number} is down: it is restarting; call again later")
        try:
            return getattr(self.objects[number], method)(*arguments), None
        except Exception as error:
            return None, error

    def result(self, handle: Any, timeout_s: float) -> Any:  # noqa: ARG002
        """Return the answer, or raise the error."""
        answer, error = handle
        if error is not None:
            raise error
        return answer

    def wait(self, handles: Sequence[Any], timeout_s: float = 0.0) -> list[Any]:  # noqa: ARG002
        """Return all handles."""
        return list(handles)

    def share(self, value: Any) -> Any:
        """Return ``value``."""
        return value

    def replace(self, number: int) -> None:
        """Rebuild an object, as after its death."""
        self._restarts[number] += 1
        self.objects[number] = self._makes[number](self._restarts[number])

    def close(self) -> None:
        """Do nothing: the objects end with this process."""
