"""Calls that fail or come at the wrong moment: framestow's errors, which Gymnasium's handlers catch too."""

from __future__ import annotations

from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError

from framestow.errors import InvalidStepError


class ClosedError(InvalidStepError, ClosedEnvironmentError):
    """A call to a vector environment that is closed."""


class StepPendingError(InvalidStepError, AlreadyPendingCallError):
    """A call while a step is in flight that has to be taken back first."""

    def __init__(self, message: str, name: str = "step") -> None:
        super().__init__(message)  # type: ignore[call-arg]  # a ValueError first: it takes the message alone
        self.name = name  # Gymnasium's handlers read it


class NoStepPendingError(InvalidStepError, NoAsyncCallError):
    """Waiting for a step that nobody began."""

    def __init__(self, message: str, name: str = "step") -> None:
        super().__init__(message)  # type: ignore[call-arg]  # a ValueError first: it takes the message alone
        self.name = name  # Gymnasium's handlers read it


def words_of(error: BaseException) -> str:
    """What an exception says; some cannot even do that, and must not hide which environment raised them."""
    try:
        return str(error)
    except Exception as trouble:
        return f"its text raised {type(trouble).__name__}"
