"""The first Ctrl-C or SIGTERM is a request; the second one is not."""

import os
import signal

import pytest

from framestow.training.loop import Interruption


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_recorded(number: signal.Signals) -> None:
    with Interruption() as interruption:
        assert not interruption.is_requested
        os.kill(os.getpid(), number)

    assert interruption.is_requested
    assert interruption.signal_number == number


def test_a_second_ctrl_c_interrupts() -> None:
    with Interruption():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_the_previous_signal_handlers_are_restored() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]

    with Interruption():
        pass

    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
