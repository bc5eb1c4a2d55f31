"""Drive a headless Chromium over its pipe: open a page, evaluate, press keys, take pictures.

Used by tests of the viewer and by `make shots`. Debian: `apt-get install chromium-headless-shell`.
"""

from __future__ import annotations

import base64
import json
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

VARIABLE: Final = "SWE_ROLLOUT_CHROMIUM"
HOW_TO_INSTALL: Final = (
    f"no Chromium: `apt-get install chromium-headless-shell`, or set {VARIABLE} to one"
)
_NAMES: Final = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
_FLAGS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
    "--remote-debugging-pipe",
)
# Chromium reads commands from descriptor 3 and responds on descriptor 4.
_STARTER: Final = (
    "import fcntl, os, sys; r, w = (fcntl.fcntl(int(n), fcntl.F_DUPFD, 10) for n in sys.argv[1:3]);"
    "os.dup2(r, 3); os.dup2(w, 4); os.execv(sys.argv[3], sys.argv[3:])"
)
_PATIENCE_S: Final = 30.0


class ChromiumError(Exception):
    """The browser responded with an error, or not at all."""


def find_chromium() -> str | None:
    """Return the path of a Chromium on this machine, or None."""
    if named := os.environ.get(VARIABLE):
        return named
    return next((found for name in _NAMES if (found := shutil.which(name))), None)


class Browser:
    """A headless browser with one tab."""

    def __init__(self, read_end: int, write_end: int) -> None:
        self._read_end = read_end
        self._write_end = write_end
        self._held = b""
        self._number = 0
        self._events: list[dict[str, Any]] = []
        self._session: str | None = None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: object) -> dict[str, Any]:
        """Send a command of the DevTools protocol to the tab; return its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write_end, data) :]
        while (answer := self._receive()).get("id") != self._number:
            self._events.append(answer)
        if "error" in answer:
            raise ChromiumError(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def _receive(self) -> dict[str, Any]:
        with selectors.DefaultSelector() as selector:
            selector.register(self._read_end, selectors.EVENT_READ)
            while b"\0" not in self._held:
                if not selector.select(_PATIENCE_S):
                    raise ChromiumError(f"the browser did not answer for {_PATIENCE_S:.0f} s")
                data = os.read(self._read_end, 1 << 20)
                if not data:
                    raise ChromiumError("the browser ended")
                self._held += data
        message, _, self._held = self._held.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def events(self, method: str) -> list[dict[str, Any]]:
        """Return the parameters of all events of that name so far."""
        self.send("Runtime.evaluate", expression="0")
        return [each["params"] for each in self._events if each.get("method") == method]

    def open(self, address: str, *, width: int = 1280, height: int = 900) -> None:
        """Open a page, and wait until it reports that it is ready."""
        self._events.clear()
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.send("Page.navigate", url="about:blank")
        self.send("Page.navigate", url=address)
        self.wait("document.body && document.body.dataset.ready === 'true'")

    def evaluate(self, expression: str) -> Any:
        """Evaluate JavaScript in the page, awaiting a promise; return its value."""
        answer = self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise ChromiumError(json.dumps(answer["exceptionDetails"])[:2000])
        return answer["result"].get("value")

    def wait(self, expression: str) -> None:
        """Wait until an expression is true."""
        until = time.monotonic() + _PATIENCE_S
        while not self.evaluate(f"Boolean({expression})"):
            if time.monotonic() > until:
                raise ChromiumError(f"never true: {expression}")
            time.sleep(0.02)

    def press(self, *keys: str) -> None:
        """Press keys, given as characters or names of `KeyboardEvent.key`."""
        for key in keys:
            text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
            code = {"Enter": 13, "Escape": 27}.get(key, 0)
            for kind in ("keyDown", "keyUp"):
                given = text if kind == "keyDown" else {}
                self.send(
                    "Input.dispatchKeyEvent",
                    type=kind,
                    key=key,
                    windowsVirtualKeyCode=code,
                    **given,
                )

    def prefer(self, scheme: str) -> None:
        """Prefer the colours `dark` or `light`, as the system settings would."""
        media = [{"name": "prefers-color-scheme", "value": scheme}]
        self.send("Emulation.setEmulatedMedia", features=media)

    def picture(self) -> bytes:
        """Return the window's content as WebP."""
        shot = self.send("Page.captureScreenshot", format="webp", quality=80)
        return base64.b64decode(shot["data"])


@contextmanager
def chromium(path: str) -> Iterator[Browser]:
    """Start the browser of that path with an empty profile; it ends with the block."""
    to_browser, from_us = os.pipe()
    from_browser, to_us = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [
            *(sys.executable, "-c", _STARTER, str(to_browser), str(to_us)),
            *(path, *_FLAGS, f"--user-data-dir={profile}"),
        ]
        log = Path(profile) / "log"
        with (
            log.open("wb") as errors,
            subprocess.Popen(
                command,
                pass_fds=(to_browser, to_us),
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
            ) as process,
        ):
            os.close(to_browser)
            os.close(to_us)
            try:
                yield Browser(from_browser, from_us)
            finally:
                os.close(from_us)
                os.close(from_browser)
                process.terminate()
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
