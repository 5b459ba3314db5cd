"""Calls to a group of equal objects, such as shards, in Ray actors or in this process; the only module that calls Ray.

``start_cluster`` joins a running cluster, or starts a local one whose processes listen on the loopback address only.
"""

from __future__ import annotations

import os
import socket
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from typing import Any, Protocol

from framestow.checks import real_number
from framestow.errors import ActorLostError, InvalidSettingsError
from framestow.extras import check_library, missing_extra

START_S = 600.0  # until an object that is started counts as hanging: on a busy machine its process imports for minutes
LOCAL_STORE_BYTES = 2**30  # of a local cluster's object store
LOCAL_ENVIRONMENT = {  # of a local cluster, unless it is set already; Ray reads it when it is imported
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # on Linux Ray otherwise listens on the machine's outside address
    "RAY_USAGE_STATS_ENABLED": "0",
    # By default actors have the lowest priority: with a busy learner on the same machine they would hardly run.
    "RAY_worker_niceness": "0",
}
CONNECT_S = 10.0  # to reach the head node of a cluster
MAX_PENDING_CALLS = 1000  # of one caller to one actor; callers wait before that, so more are an error


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
        """Wait for the answer and return it; arrays of it may be read-only.

        Raises:
            ActorLostError: the object died or did not answer in time.
            Exception: what the method raised.
        """

    def wait(self, handles: Sequence[Any], timeout_s: float = 0.0) -> list[Any]:
        """Return the handles that have an answer or an error, after waiting up to ``timeout_s`` for the first."""

    def share(self, value: Any) -> Any:
        """Return an argument for many calls that stands for ``value``, which is sent once to each machine."""

    def replace(self, number: int) -> None:
        """End an object that hangs; it is rebuilt."""

    def close(self) -> None:
        """End all objects."""


class LocalCalls(Calls):
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
        return len(self.objects)

    def call(self, number: int, method: str, *arguments: Any) -> Any:
        if number in self.down:
            return None, ActorLostError(f"object {number} is down: it is restarting; call again later")
        try:
            return getattr(self.objects[number], method)(*arguments), None
        except Exception as error:
            return None, error

    def result(self, handle: Any, timeout_s: float) -> Any:  # noqa: ARG002
        answer, error = handle
        if error is not None:
            raise error
        return answer

    def wait(self, handles: Sequence[Any], timeout_s: float = 0.0) -> list[Any]:  # noqa: ARG002
        return list(handles)

    def share(self, value: Any) -> Any:
        return value

    def replace(self, number: int) -> None:
        self._restarts[number] += 1
        self.objects[number] = self._makes[number](self._restarts[number])

    def close(self) -> None:  # the objects end with this process
        pass


class RayCalls(Calls):
    """Calls to Ray actors that Ray restarts without end. A copy in another process calls the same actors."""

    def __init__(self, actors: Sequence[Any]) -> None:
        self._actors = list(actors)

    @property
    def num_objects(self) -> int:
        return len(self._actors)

    def call(self, number: int, method: str, *arguments: Any) -> Any:
        return self._actors[number].call.remote(method, *arguments)

    def result(self, handle: Any, timeout_s: float) -> Any:
        errors = ray().exceptions
        try:
            return ray().get(handle, timeout=timeout_s)
        except errors.GetTimeoutError as error:
            raise ActorLostError(
                f"an actor did not answer in {timeout_s:g} s; see its log with `ray logs`", is_silent=True
            ) from error
        except (errors.RayActorError, errors.ObjectLostError, errors.OwnerDiedError) as error:
            raise ActorLostError(
                f"an actor died before it answered: {str(error).splitlines()[0]}; see its log with `ray logs`"
            ) from error

    def wait(self, handles: Sequence[Any], timeout_s: float = 0.0) -> list[Any]:
        if not handles:
            return []
        asked = list(handles)
        if timeout_s > 0:
            ray().wait(asked, num_returns=1, timeout=timeout_s, fetch_local=False)
        ready, _ = ray().wait(asked, num_returns=len(asked), timeout=0, fetch_local=False)
        return list(ready)

    def share(self, value: Any) -> Any:
        return ray().put(value)

    def replace(self, number: int) -> None:
        ray().kill(self._actors[number], no_restart=False)

    def process_id(self, number: int, timeout_s: float) -> int:
        """Return the id of an actor's process."""
        return int(ray().get(self._actors[number].process_id.remote(), timeout=timeout_s))

    def close(self) -> None:
        for actor in self._actors:
            ray().kill(actor)


@dataclass(frozen=True)
class ActorPlacement:
    """Where actors run.

    Arguments:
        num_cpus: Cores that Ray reserves for each actor; 0 reserves none.
        resources: Custom resources that an actor needs of its node, by name.
    """

    num_cpus: float = 0.0
    resources: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        real_number("num_cpus", self.num_cpus, 0, rule="it must be at least 0")


def start_actors(
    make: Callable[[Any, int], Any], settings: Sequence[Any], placement: ActorPlacement | None = None
) -> RayCalls:
    """Start a Ray actor for each of ``settings``, spread over the nodes.

    Each has the object that ``make`` returns of its settings and 0, or a number that grows with each restart.
    """
    start_cluster()
    placement = placement or ActorPlacement()
    actor = _make_remote_class().options(
        num_cpus=placement.num_cpus,
        resources=placement.resources,
        max_restarts=-1,
        max_task_retries=0,  # a chunk or a draw that Ray repeated would be executed twice
        max_pending_calls=MAX_PENDING_CALLS,
        scheduling_strategy="SPREAD",
    )
    pickle = import_module("ray.cloudpickle")
    return RayCalls([actor.remote(pickle.dumps((make, one))) for one in settings])


class _RayActor:
    """An object in a process of its own."""

    # Bytes: Ray puts an argument with actor handles into the object store, and could not restart the actor after the
    # loss of the node that stores it.
    def __init__(self, pickled: bytes) -> None:
        make, settings = import_module("ray.cloudpickle").loads(pickled)
        self._object = make(settings, _count_restarts())

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the object."""
        return getattr(self._object, method)(*arguments)

    def process_id(self) -> int:
        """Return the id of this process."""
        return os.getpid()


@lru_cache
def _make_remote_class() -> Any:
    return ray().remote(_RayActor)


def _count_restarts() -> int:
    """Return 0 in an actor that runs for the first time, and a number that grows with each restart otherwise."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray 2.60 warns of a name that its own property uses
        is_restarted = ray().get_runtime_context().was_current_actor_reconstructed
    return int(time.time()) if is_restarted else 0


def ray() -> Any:
    """Return the module ``ray``; raises ``MissingExtraError`` if it is not installed, or too old."""
    check_library("framestow.distributed", "ray")
    try:
        return import_module("ray")
    except ModuleNotFoundError as missing:
        raise missing_extra("framestow.distributed", missing.name, "ray") from missing


def start_cluster(address: str | None = None, num_cpus: int | None = None) -> str:
    """Join the Ray cluster at ``address``, or start a local one for ``None``; return its address.

    Has no effect if this process has joined one. A local cluster ends with this process, and all of its ports are on
    127.0.0.1: anyone who reaches a port of a Ray cluster can run code there (docs/distributed.md).

    Arguments:
        address: Such as ``"10.0.0.1:6379"`` or ``"auto"``.
        num_cpus: Number of cores that a local cluster counts with; all by default.

    Raises:
        InvalidSettingsError: there is no cluster at ``address``.
    """
    if address is None:
        for name, value in LOCAL_ENVIRONMENT.items():
            os.environ.setdefault(name, value)
    module = ray()
    if not module.is_initialized():
        options: dict[str, Any] = {
            "address": "local",  # None would join a cluster that a crashed run left
            "num_cpus": num_cpus,
            "object_store_memory": LOCAL_STORE_BYTES,
            "include_dashboard": False,
            "logging_level": "error",  # a warning says that a local cluster has a token, too
        }
        if address is not None:
            check_reachable(address)
            options = {"address": address, "logging_level": "warning"}
        try:
            module.init(log_to_driver=False, **options)
        except ConnectionError as error:
            raise _make_no_cluster_error(address, error) from error
    return str(module.get_runtime_context().gcs_address)


def check_reachable(address: str) -> None:
    """Raise ``InvalidSettingsError`` if nothing listens at ``host:port``: Ray would try for ten minutes."""
    host, _, port = address.rpartition(":")
    if host.strip("[]") and port.isdecimal() and "/" not in address:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S).close()
        except (OSError, OverflowError) as error:
            raise _make_no_cluster_error(address, error) from error


def _make_no_cluster_error(address: str | None, reason: Exception) -> InvalidSettingsError:
    return InvalidSettingsError(
        f"address is {address}: no Ray cluster answers there ({reason}); start one with `ray start --head`, or leave "
        "out the address to start one on this machine"
    )
