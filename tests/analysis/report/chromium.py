"""A headless Chromium that a test drives over a pipe, by the DevTools protocol."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
# Chromium speaks on file descriptors 3 and 4, whatever the test's own numbers are.
_LAUNCHER = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); "
    "os.execv(sys.argv[3], sys.argv[3:])"
)
_TIMEOUT_S = 60.0


class Chromium:
    """One page of one browser. `complaints` are console errors and exceptions, `requests` the
    addresses that the page asked for."""

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM is not None, "CI installs chromium; without it this test can't speak"
        theirs_in, ours_out = (_moved_up(fd) for fd in os.pipe())
        ours_in, theirs_out = (_moved_up(fd) for fd in os.pipe())
        arguments = [str(theirs_in), str(theirs_out), CHROMIUM, *_FLAGS]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _LAUNCHER, *arguments, f"--user-data-dir={profile}"],
            pass_fds=(theirs_in, theirs_out),
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._in, self._out, self._rest, self._number = ours_in, ours_out, b"", 0
        self.events: list[dict[str, Any]] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Chromium:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(timeout=_TIMEOUT_S)
        os.close(self._in)
        os.close(self._out)

    @property
    def complaints(self) -> list[dict[str, Any]]:
        kinds = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [event for event in self.events if event["method"] in kinds]

    @property
    def requests(self) -> list[str]:
        sent = [e for e in self.events if e["method"] == "Network.requestWillBeSent"]
        addresses = [str(event["params"]["request"]["url"]) for event in sent]
        return [address for address in addresses if not address.startswith("data:")]

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command to the page and return its result."""
        return self._call(method, session=self._session, **params)

    def open(
        self, page: Path, *, width: int = 1280, height: int = 900, is_dark: bool = False
    ) -> None:
        """Load `page` from disk in a window of this size, and wait until it is there."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.set_dark(is_dark)
        self.events.clear()
        self.call("Page.navigate", url=page.as_uri())
        self._until(lambda: any(e["method"] == "Page.loadEventFired" for e in self.events))
        self.settle()

    def set_dark(self, is_dark: bool) -> None:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def evaluate(self, script: str) -> Any:
        """Return what `script` comes to, awaited; an exception in it is an error."""
        found = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def settle(self) -> None:
        """Wait until what was asked for is drawn."""
        frame = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        self.evaluate(f"{frame}.then(() => true)")

    def move(self, x: float, y: float, *, kind: str = "mouseMoved", is_held: bool = False) -> None:
        """Move or press the mouse at a place of the window."""
        button = "left" if kind != "mouseMoved" or is_held else "none"
        self.call(
            "Input.dispatchMouseEvent",
            type=kind,
            x=x,
            y=y,
            button=button,
            buttons=1 if is_held or kind == "mousePressed" else 0,
            clickCount=1,
        )
        self.settle()

    def press(self, key: str, *, text: str = "") -> None:
        """Press and release a key."""
        codes = {"ArrowLeft": 37, "ArrowRight": 39, "Home": 36, "End": 35, "Escape": 27}
        codes |= {"Tab": 9, "Enter": 13, " ": 32}
        code = codes.get(key, 0)
        kind = "keyDown" if text else "rawKeyDown"
        self.call(
            "Input.dispatchKeyEvent", type=kind, key=key, text=text, windowsVirtualKeyCode=code
        )
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)
        self.settle()

    def screenshot(self, path: Path, *, is_whole: bool = True) -> bytes:
        """Write a PNG of the page (or of the window) to `path` and return it."""
        found = self.call("Page.captureScreenshot", captureBeyondViewport=is_whole)
        if is_whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
            found = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        content = base64.b64decode(found["data"])
        path.write_bytes(content)
        return content

    def pdf(self) -> bytes:
        """Return the page as printed."""
        found = self.call("Page.printToPDF", printBackground=False, preferCSSPageSize=True)
        return base64.b64decode(found["data"])

    def _call(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        view = memoryview(json.dumps(message).encode() + b"\0")
        while view:
            view = view[os.write(self._out, view) :]
        answers: list[dict[str, Any]] = []
        self._until(lambda: bool(answers), lambda found: answers.append(found), number)
        assert "error" not in answers[0], (method, answers[0]["error"])
        result: dict[str, Any] = answers[0]["result"]
        return result

    def _until(
        self,
        is_done: Callable[[], bool],
        answer: Callable[[dict[str, Any]], None] = lambda found: None,
        number: int = -1,
    ) -> None:
        """Read messages until `is_done`; the one that answers command `number` goes to `answer`."""
        end = time.monotonic() + _TIMEOUT_S
        while not is_done():
            ready, _, _ = select.select([self._in], [], [], end - time.monotonic())
            assert ready, "the browser doesn't answer"
            chunk = os.read(self._in, 1 << 20)
            assert chunk, "the browser has gone"
            *whole, self._rest = (self._rest + chunk).split(b"\0")
            for message in map(json.loads, whole):
                if message.get("id") == number:
                    answer(message)
                elif "method" in message:
                    self.events.append(message)


def _moved_up(descriptor: int) -> int:
    """Return the same file under a number that the launcher doesn't use."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(descriptor)
    return moved
