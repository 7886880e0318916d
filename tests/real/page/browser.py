"""A real browser for tests: headless Chromium, spoken to by its DevTools protocol. Keys and taps are real ones."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from websockets.sync.client import connect

_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-port=0",
)
_PATIENCE = 300
#: What the browser says of a question that came while one page went and the next had not come.
_NO_PAGE = ("Cannot find default execution context", "Inspected target navigated", "Execution context was destroyed")
#: Keys whose name is not the text they type, by their code on the keyboard.
_NAMED = {
    "Enter": 13,
    "Escape": 27,
    "Tab": 9,
    "ArrowDown": 40,
    "ArrowUp": 38,
    "ArrowLeft": 37,
    "ArrowRight": 39,
}


class Browser:
    """One Chromium and its first tab. Closes like a file."""

    def __init__(self, profile: Path) -> None:
        program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        assert program, "no browser to look at the page with; install one: apt-get install chromium fonts-noto-cjk"
        self._process = subprocess.Popen(
            [program, *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        told = profile / "DevToolsActivePort"
        deadline = time.monotonic() + _PATIENCE
        while not (told.is_file() and told.read_text().count("\n")):
            assert time.monotonic() < deadline, "the browser does not start"
            time.sleep(0.05)
        port, path = told.read_text().splitlines()[:2]
        self._open = ExitStack()
        speaking = connect(f"ws://127.0.0.1:{port}{path}", max_size=None, open_timeout=_PATIENCE)
        self._socket = self._open.enter_context(speaking)
        self._number = 0

    def tab(self) -> Tab:
        """A tab with storage of its own, as a visitor who was never here."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        return Tab(self, session, context)

    def close(self) -> None:
        """End the browser."""
        self._open.close()
        self._process.terminate()
        self._process.wait(_PATIENCE)

    def call(self, method: str, session: str | None = None, heard: list[Any] | None = None, **given: Any) -> Any:
        """Give a command and wait for its answer; what is told meanwhile goes to ``heard``."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": given}
        self._socket.send(json.dumps(message | ({"sessionId": session} if session else {})))
        while True:
            answer = json.loads(self._socket.recv(timeout=_PATIENCE))
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            # What another tab does, one of an earlier test say, is not told to this one.
            if heard is not None and answer.get("sessionId") == session:
                heard.append(answer)


class Tab:
    """A page as a person has it before them."""

    def __init__(self, browser: Browser, session: str, context: str) -> None:
        self._browser, self._session, self._context = browser, session, context
        self._heard: list[Any] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **given: Any) -> Any:
        """Give this tab a command of the protocol."""
        return self._browser.call(method, self._session, self._heard, **given)

    def close(self) -> None:
        """Leave: nothing of it asks a server any more, nor takes time from the next."""
        self._browser.call("Target.disposeBrowserContext", browserContextId=self._context)

    def go(self, address: str) -> None:
        """Open an address."""
        self.call("Page.navigate", url=address)
        self.until("document.readyState === 'complete' && document.documentElement.dataset.ready !== 'no'")

    def see(self, script: str) -> Any:
        """The value of an expression in the page; a promise is waited for."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, f"{script}: {found['exceptionDetails']}"
        return found["result"].get("value")

    def text(self, selector: str) -> str:
        """The text of the first element that is so named."""
        return str(self.see(f"document.querySelector({json.dumps(selector)})?.textContent ?? ''"))

    def texts(self, selector: str) -> list[str]:
        """The texts of all elements that are so named."""
        return list(self.see(f"[...document.querySelectorAll({json.dumps(selector)})].map((one) => one.textContent)"))

    def until(self, script: str) -> None:
        """Wait for an expression to become true."""
        deadline = time.monotonic() + _PATIENCE
        while not self._is(script):
            assert time.monotonic() < deadline, f"never came true: {script}\n{self.see('document.body.innerText')}"
            time.sleep(0.02)

    def _is(self, script: str) -> bool:
        try:
            return bool(self.see(f"Boolean({script})"))
        except AssertionError as problem:
            # Between two pages there is none to ask.
            if any(told in str(problem) for told in _NO_PAGE):
                return False
            raise

    def press(self, *keys: str) -> None:
        """Press keys one after another: ``press("j", "Enter")``."""
        for key in keys:
            code = _NAMED.get(key, ord(key.upper()) if len(key) == 1 else 0)
            typed = "\r" if key == "Enter" else key if len(key) == 1 else ""
            given = {"key": key, "windowsVirtualKeyCode": code, "text": typed}
            self.call("Input.dispatchKeyEvent", type="keyDown" if typed else "rawKeyDown", **given)
            self.call("Input.dispatchKeyEvent", type="keyUp", **given)

    def write(self, text: str) -> None:
        """Type a text into what has the focus."""
        self.call("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """Click in the middle of an element, wherever it has been scrolled to."""
        x, y = self._middle(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def tap(self, selector: str) -> None:
        """Touch the middle of an element with a finger."""
        x, y = self._middle(selector)
        self.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
        self.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def _middle(self, selector: str) -> tuple[float, float]:
        find = f"document.querySelector({json.dumps(selector)})"
        box = self.see(
            f"(() => {{ const one = {find}; one.scrollIntoView({{ block: 'center', behavior: 'instant' }});"
            " const box = one.getBoundingClientRect();"
            " return [box.x, box.y, box.width, box.height]; })()"
        )
        assert box[2] and box[3], f"{selector} is not to be seen"
        x, y = box[0] + box[2] / 2, box[1] + box[3] / 2
        hit = self.see(f"{find}.contains(document.elementFromPoint({x}, {y}))")
        assert hit, f"{selector} lies under something else"
        return x, y

    def screen(self, width: int, height: int, *, phone: bool = False, density: float = 1) -> None:
        """Have a screen of this size; a phone's is touched."""
        size = {"width": width, "height": height, "deviceScaleFactor": density}
        self.call("Emulation.setDeviceMetricsOverride", mobile=phone, **size)
        self.call("Emulation.setTouchEmulationEnabled", enabled=phone)

    def prefer(self, scheme: str) -> None:
        """Prefer light or dark, as the system does."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def speak(self, tag: str) -> None:
        """Be a browser of this language."""
        agent = self._browser.call("Browser.getVersion")["userAgent"]
        self.call("Emulation.setUserAgentOverride", userAgent=agent, acceptLanguage=tag)

    def shot(self, file: Path | None = None, whole: bool = False) -> bytes:
        """A picture of what is to be seen, or of the whole page."""
        data = base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"])
        if file is not None:
            file.write_bytes(data)
        return data

    def complaints(self) -> list[str]:
        """What the browser found wrong so far: exceptions, policy violations, requests to elsewhere."""
        self.see("0")
        found = []
        for event in self._heard:
            if event["method"] == "Runtime.exceptionThrown":
                details = event["params"]["exceptionDetails"]
                found.append(str(details.get("exception", {}).get("description", details["text"])))
            elif event["method"] == "Log.entryAdded":
                entry = event["params"]["entry"]
                # An answer that is an error is no fault of the page.
                if entry["level"] == "error" and entry["source"] != "network":
                    found.append(entry["text"])
            elif event["method"] == "Network.requestWillBeSent":
                url = event["params"]["request"]["url"]
                if not url.startswith(("http://127.0.0.1:", "data:", "about:")):
                    found.append(f"a request to {url}")
        return found
