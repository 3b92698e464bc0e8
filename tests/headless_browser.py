"""A browser of Chromium's kind without a window: opens a page, reads it, takes pictures of it.

It is spoken to through a pipe in the DevTools protocol
(https://chromedevtools.github.io/devtools-protocol), which all of them have, those that are packed
for servers, too. No network is reached and no profile of the user is read.
"""

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import time
from contextlib import contextmanager

VARIABLE = "LOCAL_TRAINER_BROWSER"
BROWSERS = (
    *("chromium", "chromium-browser", "chromium-headless-shell", "chrome-headless-shell"),
    *("google-chrome", "google-chrome-stable", "chrome", "microsoft-edge"),
)
HEIGHT = 1600
_PATIENCE_S = 60.0


def find_browser():
    """The browser that the variable names, or else one on the PATH; None if there is none.

    Raises:
        FileNotFoundError: the variable names no program.
    """
    named = os.environ.get(VARIABLE)
    if named:
        found = shutil.which(named)
        if found is None:
            raise FileNotFoundError(f"{VARIABLE}={named!r} names no program")
        return found
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


class Browser:
    """One page. Life: `open_browser`, then `open`, and `evaluate` and `picture` in any order."""

    def __init__(self, commands, answers):
        self._commands, self._answers = commands, answers
        self._read = b""
        self._num_sent = 0
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]

    def open(self, address, *, width):
        """Opens a page in a window of this width, and waits until it is loaded."""
        size = {"width": width, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
        self._ask("Emulation.setDeviceMetricsOverride", in_page=True, **size)
        self._ask("Page.navigate", in_page=True, url=address)
        deadline = time.monotonic() + _PATIENCE_S
        ready = f"document.readyState === 'complete' && location.href === {json.dumps(address)}"
        while not self.evaluate(ready):
            assert time.monotonic() < deadline, f"{address} was not loaded"

    def evaluate(self, script):
        """The value of an expression of JavaScript in the page."""
        given = {"expression": script, "returnByValue": True}
        answer = self._ask("Runtime.evaluate", in_page=True, **given)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def picture(self, file):
        """Writes the whole page as a PNG."""
        given = {"format": "png", "captureBeyondViewport": True}
        data = self._ask("Page.captureScreenshot", in_page=True, **given)["data"]
        file.write_bytes(base64.b64decode(data))
        return file.read_bytes()

    def close(self):
        self._ask("Browser.close")

    def _ask(self, method, *, in_page=False, **params):
        self._num_sent += 1
        session = {"sessionId": self._session} if in_page else {}
        asked = {"id": self._num_sent, "method": method, "params": params, **session}
        os.write(self._commands, json.dumps(asked).encode() + b"\0")
        while (answer := self._next_message()).get("id") != self._num_sent:
            pass  # an event
        assert "error" not in answer, answer
        return answer["result"]

    def _next_message(self):
        while b"\0" not in self._read:
            assert select.select([self._answers], [], [], _PATIENCE_S)[0], "no answer"
            read = os.read(self._answers, 2**20)
            assert read, "the browser has ended"
            self._read += read
        message, _, self._read = self._read.partition(b"\0")
        return json.loads(message)


@contextmanager
def open_browser(program, folder):
    """A browser whose profile lies in a folder; ended with the block."""
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    words = [
        program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--hide-scrollbars", "--no-first-run", "--host-resolver-rules=MAP * ~NOTFOUND",
        "--remote-debugging-pipe", f"--user-data-dir={folder / 'profile'}", "about:blank",
    ]  # fmt: skip
    # The protocol wants 3 and 4; `exec 3<&n` of the shell places them.
    shell = f'exec 3<&{theirs_in} 4>&{theirs_out}; exec "$@"'
    with (folder / "browser.log").open("wb") as log:
        process = subprocess.Popen(
            ["bash", "-c", shell, "bash", *words],
            pass_fds=(theirs_in, theirs_out), stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        browser = Browser(ours_out, ours_in)
        yield browser
        browser.close()
        process.wait(_PATIENCE_S)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # with all that it has started
            process.wait()
        os.close(ours_out)
        os.close(ours_in)
