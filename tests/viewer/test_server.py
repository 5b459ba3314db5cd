"""``framestow view --serve``: serves a memory to this machine, to those who have the address, and changes nothing."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urljoin

import pytest

from framestow.viewer import server as server_module
from framestow.viewer.memory_view import MemoryView
from framestow.viewer.server import MAX_CONNECTIONS, ViewServer
from oracles.forked_children import fork_and_call, running
from oracles.numbered_steps import numbered_memory, play_episode
from oracles.shown_resources import unpack


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save(tmp_path / "memory", num_episodes=3)
    return tmp_path / "memory"


def save(folder: Path, num_episodes: int) -> None:
    memory = numbered_memory(100)
    for episode in range(num_episodes):
        play_episode(memory, episode, 5, truncated=True)
    memory.save(folder)


@pytest.fixture
def server(folder: Path) -> Iterator[ViewServer]:
    server = ViewServer(folder)
    thread = threading.Thread(target=server.serve)
    thread.start()
    ask(server, "")  # it serves from now on
    yield server
    server.close()
    thread.join()


def ask(server: ViewServer, path: str, method: str = "GET", host: str | None = None) -> tuple[int, bytes]:
    """Status and content of an answer; ``path`` follows the address, unless it begins with a slash."""
    connection = http.client.HTTPConnection(server.host)
    whole = path if path.startswith("/") else server.address.removeprefix(f"http://{server.host}") + path
    connection.request(method, whole, headers={"Host": host or server.host})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, content


def source_of(page: bytes) -> str:
    return re.search(rb'data-source="([^"]+)"', page)[1].decode()


@pytest.mark.parametrize("end", ["/", ""])
def test_it_serves_the_page_and_every_resource_of_the_memory(server, folder, end):
    address = server.address.removesuffix("/") + end
    with urllib.request.urlopen(address) as answer:
        page = answer.read()

    view, source = MemoryView.open(folder), urljoin(address, source_of(page)).removeprefix(f"http://{server.host}")
    for name in ("memory", "episodes", "sparklines/0", "episode/2", "frames/2/0"):
        assert (200, view.resource(name)) == ask(server, f"{source}/{name}")
    assert 404 == ask(server, f"{source}/episode/3")[0]
    assert b"resource:episode/" not in page


@pytest.mark.parametrize("path", ["/", "/episodes", "/wrong/", "/wrong/1/episodes", "//", "/../"])
def test_it_refuses_requests_without_its_token(server, path):
    status, content = ask(server, path)

    assert 403 == status
    assert b"token" in content


@pytest.mark.parametrize("host", ["localhost", "example.org", "127.0.0.1", "127.0.0.1:1"])
def test_it_refuses_requests_for_another_host(server, host):
    assert 403 == ask(server, "", host=host)[0]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_it_answers_nothing_but_get(server, method):
    assert 501 == ask(server, "", method)[0]


def test_it_listens_on_this_machine_only_and_each_server_has_a_token_of_its_own(server, folder):
    with ViewServer(folder) as other:
        assert server.host.startswith("127.0.0.1:")
        assert server.host != other.host
        assert server.address.split("/")[3] != other.address.split("/")[3]


def test_a_page_that_is_loaded_again_shows_what_was_saved_since_and_an_older_one_is_told(server, folder):
    before = source_of(ask(server, "")[1])
    save(folder, num_episodes=7)
    assert 200 == ask(server, f"{before}/episodes")[0]

    after = source_of(ask(server, "")[1])

    assert 7 == len(unpack(ask(server, f"{after}/episodes")[1]).arrays["number"])
    status, content = ask(server, f"{before}/episodes")
    assert 410 == status
    assert b"reload the page" in content


def test_it_changes_no_file(server, folder):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    for name in ("", f"{source_of(ask(server, '')[1])}/frames/0/0"):
        assert 200 == ask(server, name)[0]

    assert before == {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_command_prints_the_address_and_stops_at_ctrl_c(folder):
    command = [sys.executable, "-m", "framestow", "view", str(folder), "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        address = process.stdout.readline().strip()
        with urllib.request.urlopen(address) as answer:
            page = answer.read()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)

    assert b"<h2 id=" in page
    assert (0, "") == (process.returncode, err)
    assert out.endswith("stopped\n")
    assert not list(folder.parent.glob("*.html"))


def connect(server: ViewServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(server.host.partition(":")[2])), timeout=10)


def test_a_client_that_sends_a_byte_at_a_time_is_given_up_and_others_are_answered_meanwhile(server, monkeypatch):
    monkeypatch.setattr(server_module, "REQUEST_S", 0.3)
    with connect(server) as slow:
        began = time.monotonic()
        slow.sendall(b"GET / HTTP/1.0\r\n")
        assert 200 == ask(server, "")[0]
        with contextlib.suppress(ConnectionError):
            while time.monotonic() - began < 5:
                slow.sendall(b"x")
                time.sleep(0.02)

        assert 0.3 <= time.monotonic() - began < 5


def test_clients_beyond_the_bound_get_no_thread(server, monkeypatch):
    monkeypatch.setattr(server_module, "REQUEST_S", 2)
    before = threading.active_count()
    with contextlib.ExitStack() as connections:
        for _ in range(MAX_CONNECTIONS + 20):
            last = connections.enter_context(connect(server))
        with contextlib.suppress(ConnectionError):
            assert b"" == last.recv(1)

        assert MAX_CONNECTIONS - 5 <= threading.active_count() - before <= MAX_CONNECTIONS  # five may be ending
    deadline = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.02)
    assert 200 == ask(server, "")[0]


@pytest.mark.parametrize("kind", ["episode", "sparklines", "frames/0"])
def test_a_number_of_5000_digits_names_nothing(server, kind, capfd):
    assert 404 == ask(server, f"{source_of(ask(server, '')[1])}/{kind}/{'9' * 5_000}")[0]

    assert "" == capfd.readouterr().err


def test_a_client_that_leaves_ends_in_no_traceback(server, capfd):
    for begun in (
        b"",
        b"GET",
        f"GET /{server.address.split('/')[3]}/ HTTP/1.0\r\nHost: {server.host}\r\n\r\n".encode(),
    ):
        with connect(server) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset at once
            connection.sendall(begun)
    assert 200 == ask(server, "")[0]

    server.close()
    assert "" == capfd.readouterr().err


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_child_forked_while_a_thread_serves_reads_and_closes_and_does_not_hang(server):
    path = server.address.removeprefix(f"http://{server.host}")
    episodes = f"{source_of(ask(server, '')[1])}/episodes"

    def read_and_close() -> None:
        for asked in (path, episodes):
            assert server.answer(server.host, asked)[0] == 200
        server.close()

    with running(lambda: ask(server, ""), lambda: ask(server, episodes)):
        for _ in range(25):
            assert fork_and_call(read_and_close) == ""
