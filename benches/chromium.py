"""Headless Chromium, controlled through a pipe with its DevTools protocol."""
import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time


class Browser:
    """A browser with one page."""

    def __init__(self, *options):
        self.home = tempfile.mkdtemp(prefix="heaptide-chromium-")
        commands, self.commands = os.pipe()
        self.answers, answers = os.pipe()
        # It reads commands from descriptor 3 and writes responses to descriptor 4.
        script = (f'exec chromium "$@" --remote-debugging-pipe 3<&{commands} 4>&{answers} '
                  '</dev/null >/dev/null 2>&1')
        self.child = subprocess.Popen(
            ["sh", "-c", script, "sh", "--headless", "--no-sandbox", "--disable-gpu",
             "--disable-dev-shm-usage", "--force-device-scale-factor=1",
             f"--user-data-dir={self.home}", *options],
            pass_fds=(commands, answers), start_new_session=True)
        os.close(commands)
        os.close(answers)
        self.count, self.rest, self.session, self.events = 0, b"", None, []
        page = self.send("Target.createTarget", url="about:blank")
        found = self.send("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self.session = found["sessionId"]
        self.send("Page.enable")
        self.send("Runtime.enable")

    def send(self, method, **parameters):
        """Sends a command and returns its result."""
        self.count += 1
        command = {"id": self.count, "method": method, "params": parameters}
        if self.session:
            command["sessionId"] = self.session
        os.write(self.commands, json.dumps(command).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)

    def receive(self):
        while b"\0" not in self.rest:
            part = os.read(self.answers, 1 << 20)
            if not part:
                raise RuntimeError("chromium ended")
            self.rest += part
        answer, self.rest = self.rest.split(b"\0", 1)
        return json.loads(answer)

    def value(self, expression):
        """Returns the value of an expression in the page."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True,
                           awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def until(self, expression, seconds=240):
        end = time.monotonic() + seconds
        while not self.value(f"(() => {{ try {{ return Boolean({expression}) }} catch {{}} }})()"):
            if time.monotonic() > end:
                raise RuntimeError(f"{expression}: not within {seconds} s")
            time.sleep(0.02)

    def window(self, width, height):
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=width < 600)

    def theme(self, name):
        """Sets the theme, `light` or `dark`."""
        feature = {"name": "prefers-color-scheme", "value": name}
        self.send("Emulation.setEmulatedMedia", features=[feature])

    def open(self, address):
        self.send("Page.navigate", url=address)

    def picture(self, file):
        answer = self.send("Page.captureScreenshot", format="png")
        with open(file, "wb") as out:
            out.write(base64.b64decode(answer["data"]))

    def close(self):
        os.close(self.commands)
        os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()
        os.close(self.answers)
        shutil.rmtree(self.home, ignore_errors=True)
