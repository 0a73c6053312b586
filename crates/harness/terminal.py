"""Runs a command in a terminal of its own and prints what happened, for tests of `heaptide run`.

terminal.py interrupt COMMAND…   Ctrl-C once the command printed "ready"; its output and status
terminal.py hangup COMMAND…      the terminal goes away; whether the process of "ready PID" is gone
terminal.py suspend COMMAND…     below an interactive bash: Ctrl-Z, fg; what bash says of the job
terminal.py stops COMMAND…       below an interactive bash: the command stops itself, fg
terminal.py alone COMMAND…       the command stops itself, and only the program of "ready PID" is
                                 continued
terminal.py page COMMAND…        a terminal of 70 columns; what the command shows on it
"""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time

PATIENCE = 60


class Terminal:
    """The program at the other end, and what it wrote."""

    def __init__(self, words, columns=80):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            # The tests may be a background job, or run by nohup.
            for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            os.execvp(words[0], words)
        self.text = ""
        self.seen = 0

    def until(self, pattern):
        """Waits for new output that matches."""
        end = time.monotonic() + PATIENCE
        while True:
            found = re.search(pattern, self.text[self.seen :])
            if found:
                self.seen += found.end()
                return found
            if time.monotonic() > end:
                sys.exit(f"waited for {pattern!r}, got {self.text!r}")
            if select.select([self.fd], [], [], 0.05)[0]:
                try:
                    self.text += os.read(self.fd, 65536).decode(errors="replace")
                except OSError:
                    sys.exit(f"waited for {pattern!r}, it ended with {self.text!r}")

    def type(self, text):
        os.write(self.fd, text.encode())

    def rest(self):
        """What it writes until it ends, and its status as a shell shows it."""
        while True:
            try:
                more = os.read(self.fd, 65536)
            except OSError:
                more = b""
            if not more:
                break
            self.text += more.decode(errors="replace")
        status = os.waitpid(self.pid, 0)[1]
        code = os.waitstatus_to_exitcode(status)
        return self.text[self.seen :].replace("\r", ""), code if code >= 0 else 128 - code


def state(pid):
    """The letter of a process's state; none if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rsplit(") ", 1)[1][0]
    except OSError:
        return None


def wait_until(what, holds):
    end = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > end:
            sys.exit(f"waited for {what}")
        time.sleep(0.01)


def interrupt(words):
    terminal = Terminal(words)
    terminal.until("ready")
    terminal.type("\x03")
    text, status = terminal.rest()
    # The echo of the terminal is lost if the program ends before it is read.
    print(text.replace("^C", "").strip())
    print("status", status)


def hangup(words):
    terminal = Terminal(words)
    program = int(terminal.until(r"ready (\d+)")[1])
    os.close(terminal.fd)
    wait_until("the end of the program", lambda: state(program) in (None, "Z"))
    wait_until("the end of the command", lambda: state(terminal.pid) in (None, "Z"))
    print("gone")


class Bash(Terminal):
    """An interactive shell with job control, whose prompt is `$ `."""

    def __init__(self):
        os.environ["PS1"] = "PROMPT> "
        super().__init__(["bash", "--norc", "--noprofile", "-i"])
        self.until("PROMPT> ")

    def start(self, words):
        self.type(" ".join(words) + "\n")
        return int(self.until(r"ready (\d+)")[1])

    def leave(self):
        self.type("echo status $?\n")
        print("status", self.until(r"status (\d+)\r")[1])
        self.type("exit\n")
        self.rest()


def continued(bash, program):
    """Continues a program that stops, and ends it."""
    bash.until("Stopped")
    print("stopped", state(program))
    bash.type("fg\n")
    wait_until("the program to go on", lambda: state(program) not in ("T", "t"))
    print("goes on")
    os.kill(program, signal.SIGRTMAX)
    bash.until("PROMPT> ")
    bash.leave()


def suspend(words):
    bash = Bash()
    program = bash.start(words)
    bash.type("\x1a")
    continued(bash, program)


def stops(words):
    bash = Bash()
    program = bash.start(words)
    os.kill(program, signal.SIGUSR1)
    continued(bash, program)


def alone(words):
    terminal = Terminal(words)
    program = int(terminal.until(r"ready (\d+)")[1])
    os.kill(program, signal.SIGUSR1)
    wait_until("the program to stop", lambda: state(program) == "T")
    wait_until("the command to stop", lambda: state(terminal.pid) == "T")
    os.kill(program, signal.SIGCONT)
    wait_until("the command to go on", lambda: state(terminal.pid) != "T")
    os.kill(program, signal.SIGRTMAX)
    print("status", terminal.rest()[1])


def page(words):
    text, status = Terminal(words, columns=70).rest()
    print(text, end="")
    sys.exit(status)


if __name__ == "__main__":
    ways = [interrupt, hangup, suspend, stops, alone, page]
    {way.__name__: way for way in ways}[sys.argv[1]](sys.argv[2:])
