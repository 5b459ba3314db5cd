"""The first signal is a request to stop; a second Ctrl-C is not."""

import os
import signal

import pytest

from framestow.training.loop import STOPPING_SIGNALS, Interruption


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
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


def test_the_signals_of_a_closing_terminal_are_one_request() -> None:
    with Interruption() as interruption:
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGHUP):
            os.kill(os.getpid(), number)

    assert interruption.signal_number == signal.SIGHUP


def test_under_nohup_a_closed_terminal_stops_nothing() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interruption() as interruption:
            os.kill(os.getpid(), signal.SIGHUP)
        after = signal.getsignal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)

    assert not interruption.is_requested
    assert after == signal.SIG_IGN


def test_the_previous_signal_handlers_are_restored() -> None:
    before = [signal.getsignal(number) for number in STOPPING_SIGNALS]

    with Interruption():
        pass

    assert [signal.getsignal(number) for number in STOPPING_SIGNALS] == before
