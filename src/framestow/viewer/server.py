"""``ViewServer``: serves the view of a memory to browsers of this machine, for ``framestow view --serve``."""

from __future__ import annotations

import hmac
import secrets
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from framestow.closing import Closing
from framestow.errors import DamagedDataError, IncompatibleError
from framestow.replay.inspection import find_files
from framestow.viewer.memory_view import FindAgent, MemoryView
from framestow.viewer.page import page_html

LOCALHOST = "127.0.0.1"
POLL_S = 0.05  # for a call of ``close``
TIMEOUT_S = 30  # for a browser that stops reading
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
        self._server = ThreadingHTTPServer((LOCALHOST, 0), self._handler())
        self._server.daemon_threads = True
        self._is_serving = False
        self.host = f"{LOCALHOST}:{self._server.server_address[1]}"

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
            content = page_html(view, source=str(view.generation))
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
                try:
                    status, kind, content = server.answer(self.headers.get("Host"), self.path)
                except (OSError, DamagedDataError, IncompatibleError) as error:
                    status, kind, content = _refuse(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))
                self.send_response(status)
                for name, value in {**HEADERS, "Content-Type": kind, "Content-Length": str(len(content))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        return Handler


def _refuse(status: HTTPStatus, why: str) -> tuple[HTTPStatus, str, bytes]:
    return status, "text/plain; charset=utf-8", why.encode()
