"""``ViewServer``: serves the view of a memory to browsers of this machine, for ``framestow view --serve``."""

from __future__ import annotations

import contextlib
import hmac
import secrets
import socket
import sys
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from framestow.errors import FramestowError
from framestow.interface import Closing
from framestow.replay.forked_locks import call_in_children
from framestow.replay.reports.inspection import find_files
from framestow.viewer.memory_view import FindAgent, MemoryView
from framestow.viewer.page import page_html

LOCALHOST = "127.0.0.1"
POLL_S = 0.05  # for a call of ``close``
REQUEST_S = 5  # for a whole request, however it comes
TIMEOUT_S = 30  # for a browser that stops reading
MAX_CONNECTIONS = 32  # each has a thread; a browser opens six
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class ViewServer(Closing):
    """Serves a snapshot of the memory in a folder on a free port of 127.0.0.1, until ``close``.

    Its address has a random token, and requests for another host or without the token are refused, so that neither
    another user nor a page of another site reads the memory. It only reads. When the page is loaded again it shows the
    newest generation, unless it was opened with one.

    A client has 5 seconds for its whole request and 30 to read an answer. At most 32 are answered at a time.

    >>> import tempfile, urllib.request
    >>> from framestow import FrameSpec, ReplayMemory
    >>> folder = Path(tempfile.mkdtemp())
    >>> generation = ReplayMemory(100, FrameSpec((2, 2)), 4, stack=4).save(folder)
    >>> server = ViewServer(folder)
    >>> thread = threading.Thread(target=server.serve)
    >>> thread.start()
    >>> b"<h2" in urllib.request.urlopen(server.address).read()
    True
    >>> server.close()
    >>> thread.join()
    """

    def __init__(self, folder: Path, generation: int | None = None, *, find_agent: FindAgent = lambda _: None) -> None:
        self._folder, self._wanted, self._find_agent = folder, generation, find_agent
        self._lock = threading.Lock()  # held while another generation is opened
        self._view = self._open_view()
        self._token = secrets.token_urlsafe(24)
        self._server = _BoundedServer((LOCALHOST, 0), self._handler())
        self._is_serving = False
        self.host = f"{LOCALHOST}:{self._server.server_address[1]}"
        call_in_children(self)

    def enter_child(self) -> None:
        """Leave the threads to the parent: the one that serves, and one that opens a generation."""
        self._lock, self._is_serving = threading.Lock(), False

    @property
    def address(self) -> str:
        """Address of the page, with the token."""
        return f"http://{self.host}/{self._token}/"

    def serve(self) -> None:
        """Answer requests until ``close`` is called, by another thread."""
        self._is_serving = True
        self._server.serve_forever(POLL_S)

    def close(self) -> None:
        """Stop ``serve``, if a thread runs it, and release the port."""
        if self._is_serving:
            self._server.shutdown()
        self._server.server_close()

    def answer(self, host: str | None, path: str) -> tuple[HTTPStatus, str, bytes]:
        """Return the status, the type and the content for a request."""
        if host != self.host:
            return _refuse(HTTPStatus.FORBIDDEN, f"this server answers requests for {self.host} only")
        token, _, rest = path.removeprefix("/").partition("?")[0].partition("/")
        if not hmac.compare_digest(token.encode(), self._token.encode()):
            return _refuse(HTTPStatus.FORBIDDEN, "the address lacks the token; use the one that framestow view printed")
        if not rest:
            view = self._newest_view()
            content = page_html(view, source=f"/{self._token}/{view.generation}")
            return HTTPStatus.OK, "text/html; charset=utf-8", content.encode()
        view = self._view
        generation, _, name = rest.partition("/")
        if generation != str(view.generation):
            return _refuse(HTTPStatus.GONE, "the memory was saved again: reload the page to see it as it is now")
        try:
            return HTTPStatus.OK, "application/octet-stream", view.resource(name)
        except LookupError as error:
            return _refuse(HTTPStatus.NOT_FOUND, str(error.args[0]))

    def _newest_view(self) -> MemoryView:
        """Return the view, of a newer generation if there is one that can be opened."""
        with self._lock:
            if self._wanted is None and find_files(self._folder).generation != self._view.generation:
                self._view = self._open_view()
            return self._view

    def _open_view(self) -> MemoryView:
        return MemoryView.open(self._folder, self._wanted, find_agent=self._find_agent)

    def _handler(server) -> type[BaseHTTPRequestHandler]:  # noqa: N805 -- the class below has a self of its own
        class Handler(BaseHTTPRequestHandler):
            timeout = TIMEOUT_S
            server_version, sys_version = "framestow", ""

            def do_GET(self) -> None:
                """Answer with the page or a resource."""
                self.server.unread.pop(self.connection, None)  # type: ignore[attr-defined]  # a `_BoundedServer`
                try:
                    status, kind, content = server.answer(self.headers.get("Host"), self.path)
                except (OSError, FramestowError, MemoryError) as error:
                    status, kind, content = _refuse(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))
                self.send_response(status)
                for name, value in {**HEADERS, "Content-Type": kind, "Content-Length": str(len(content))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        return Handler


class _BoundedServer(ThreadingHTTPServer):
    """Gives up clients that are slow with their request, and refuses those beyond ``MAX_CONNECTIONS``."""

    daemon_threads = True
    request_queue_size = 128  # waiting for the loop, which refuses them at once

    def __init__(self, *arguments: Any) -> None:
        self.unread: dict[Any, float] = {}  # connections whose request has not come whole, and until when it may
        self._open: set[Any] = set()
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a client in a thread of its own."""
        if len(self._open) >= MAX_CONNECTIONS:
            self.shutdown_request(request)
            return
        self._open.add(request)
        self.unread[request] = time.monotonic() + REQUEST_S
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Give up the clients whose time is over; ``serve_forever`` calls it every ``POLL_S``."""
        for request, deadline in list(self.unread.items()):
            if time.monotonic() > deadline:
                self.unread.pop(request, None)
                with contextlib.suppress(OSError):  # its thread has closed it
                    request.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        self.unread.pop(request, None)
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print the traceback of an error of ours; a client that left is none."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


def _refuse(status: HTTPStatus, why: str) -> tuple[HTTPStatus, str, bytes]:
    return status, "text/plain; charset=utf-8", why.encode()
