"""Drives a headless Chromium by chromedriver: the calls of the W3C WebDriver protocol that the checks need."""

from __future__ import annotations

import base64
import json
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # key of an element's identifier, a constant of the protocol
KEYS = {
    "left": "\ue012", "up": "\ue013", "right": "\ue014", "down": "\ue015", "home": "\ue011", "end": "\ue010",
    "space": " ", "enter": "\ue007",
}  # fmt: skip
STARTS_WITHIN_S = 20
PATIENCE_S = 10  # for a condition of ``wait``
RESTS_S = 0.5  # after another size, until all is drawn


class Browser:
    """A headless Chromium of ``width`` by 900 pixels, light or dark; close it, or use it in a ``with`` block.

    A picture has ``ratio`` times as many pixels on a side.
    """

    def __init__(self, width: int = 1280, *, is_dark: bool = False, height: int = 900, ratio: float = 1) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._driver = subprocess.Popen(
            ["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._address = f"http://127.0.0.1:{port}"
        options = {"args": ["--headless=new", "--no-sandbox", "--hide-scrollbars", "--force-device-scale-factor=1"]}
        try:
            session = self._start({"browserName": "chrome", "goog:chromeOptions": options})
            self._address += f"/session/{session}"
            self.set_scheme(is_dark=is_dark)
            self._width, self._height, self._ratio = width, height, ratio
            self._resize(height)
        except BaseException:
            self._driver.kill()
            raise

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._call("DELETE", "")
        finally:
            self._driver.terminate()
            self._driver.wait()

    def set_scheme(self, *, is_dark: bool) -> None:
        """Ask pages for a dark or a light look."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self._devtools("Emulation.setEmulatedMedia", {"features": [scheme]})

    def open(self, address: str) -> None:
        self._call("POST", "/url", {"url": address})

    def run(self, script: str, *arguments: Any) -> Any:
        """Run JavaScript, which may ``return`` a promise, and return its result."""
        wrapped = f"return (async () => {{ {script} }})()"
        return self._call("POST", "/execute/sync", {"script": wrapped, "args": list(arguments)})

    def wait(self, condition: str) -> Any:
        """Wait until a JavaScript expression is true, and return its value."""
        before = time.monotonic() + PATIENCE_S
        while not (value := self.run(f"return {condition}")):
            if time.monotonic() > before:
                raise TimeoutError(f"{condition} is not true within {PATIENCE_S} s")
            time.sleep(0.02)
        return value

    def click(self, selector: str) -> None:
        self._call("POST", f"/element/{self._find(selector)}/click", {})

    def type(self, selector: str, text: str) -> None:
        self._call("POST", f"/element/{self._find(selector)}/value", {"text": text})

    def press(self, *keys: str) -> None:
        """Press keys one after the other, where the focus is: characters, or names of ``KEYS``."""
        actions = [{"type": kind, "value": KEYS.get(key, key)} for key in keys for kind in ("keyDown", "keyUp")]
        self._call("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def click_at(self, selector: str, share: float) -> None:
        """Click into an element, at this share of its width."""
        element = self._find(selector)
        width = self.run("return document.querySelector(arguments[0]).getBoundingClientRect().width", selector)
        where = {"type": "pointerMove", "origin": {ELEMENT: element}, "x": round(width * (share - 0.5)), "y": 0}
        clicks = [where, {"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}]
        pointer = {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": clicks}
        self._call("POST", "/actions", {"actions": [pointer]})

    def screenshot(self, path: Path, *, is_whole: bool = True, rows: tuple[float, float] | None = None) -> None:
        """Write a PNG picture of the whole page, or of what is in sight, or of the page between two ``rows``."""
        if is_whole:
            self._resize(self._devtools("Page.getLayoutMetrics", {})["cssContentSize"]["height"])
            time.sleep(RESTS_S)
        top, bottom = rows or (0, 0)
        clip = {"x": 0, "y": top, "width": self._width, "height": bottom - top, "scale": 1}
        picture = self._devtools("Page.captureScreenshot", {"clip": clip} if rows else {})
        path.write_bytes(base64.b64decode(picture["data"]))
        self._resize(self._height)

    def messages(self) -> list[str]:
        """Return the messages of the console since the last call, errors of scripts among them."""
        return [entry["message"] for entry in self._call("POST", "/se/log", {"type": "browser"})]

    def _resize(self, height: int) -> None:
        size = {"width": self._width, "height": height, "deviceScaleFactor": self._ratio, "mobile": self._width < 640}
        self._devtools("Emulation.setDeviceMetricsOverride", size)

    def _find(self, selector: str) -> str:
        found = self._call("POST", "/element", {"using": "css selector", "value": selector})
        return str(found[ELEMENT])

    def _devtools(self, command: str, parameters: dict[str, Any]) -> Any:
        return self._call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def _start(self, capabilities: dict[str, Any]) -> str:
        before = time.monotonic() + STARTS_WITHIN_S
        while True:
            try:
                body = {"capabilities": {"alwaysMatch": capabilities | {"goog:loggingPrefs": {"browser": "ALL"}}}}
                return str(self._call("POST", "/session", body)["sessionId"])
            except urllib.error.URLError:
                if time.monotonic() > before:
                    raise
                time.sleep(0.05)

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._address + path, content, method=method)
        try:
            with urllib.request.urlopen(request) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{method} {path}: {json.load(error)['value']['message']}") from error
