"""What commands print on a terminal of a given width: in tmux where it is installed, else on a pseudo-terminal."""

from __future__ import annotations

import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
SOURCE = str(Path(__file__).parents[1])
PATIENCE_S = 120


def environment(**more: str) -> dict[str, str]:
    """Return this process's environment in which the checkout's `tune` is found, and ``more``."""
    left = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    return {**left, "PYTHONPATH": SOURCE, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **more}


Screen = tuple[int, list[str]]
"""An exit status, and lines as the program ended them."""
MARK = "==== screen"
EACH = f"""
import fcntl, shlex, struct, sys, termios
from tuner.cli import main
for line in sys.argv[1:]:
    columns, *words = shlex.split(line)
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 50, int(columns), 0, 0))
    try:
        main(words)
    except SystemExit as ended:
        print("{MARK}", ended.code, flush=True)
"""


def on_terminal(commands: Sequence[str], columns: int, folder: Path, **more: str) -> list[Screen]:
    """Run commands in turn in one process on a pseudo-terminal of so many columns; return what each printed."""
    return on_terminals([(columns, command) for command in commands], folder, **more)


def on_terminals(commands: Sequence[tuple[int, str]], folder: Path, **more: str) -> list[Screen]:
    """Run commands in turn in one process on a pseudo-terminal that has the given columns for each."""
    head, tail = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", EACH, *(f"{columns} {command}" for columns, command in commands)],
        stdin=tail,
        stdout=tail,
        stderr=tail,
        cwd=folder,
        env=environment(**more),
    )
    os.close(tail)
    pieces = []
    while True:
        try:
            piece = os.read(head, 1 << 16)
        except OSError:  # Linux' end of a terminal that nothing has open any more
            break
        if not piece:
            break
        pieces.append(piece)
    os.close(head)
    assert process.wait() == 0
    text = b"".join(pieces).decode("utf-8", "backslashreplace").replace("\r\n", "\n")
    screens = re.split(rf"{MARK} (.+)\n", text)
    return [
        (int(status), out.removesuffix("\n").split("\n"))
        for out, status in zip(screens[::2], screens[1::2], strict=False)
    ]


def in_tmux(command: str, columns: int, folder: Path, ctrl_c_at: str | None = None) -> list[str]:
    """Run the command line in a window of tmux; return the screen with what has scrolled off it.

    With ``ctrl_c_at``, Ctrl-C is pressed as soon as this text is on the screen.
    """
    tmux, socket = shutil.which("tmux"), str(folder / "tmux.socket")
    assert tmux is not None
    base, done = [tmux, "-S", socket, "-f", os.devnull], folder / "done"
    program = shlex.join([sys.executable, "-m", "tuner"])
    size = ["-x", str(columns), "-y", "50"]
    shell = f"{program} {command}; echo $? > {shlex.quote(str(done))}; sleep {PATIENCE_S}"
    subprocess.run(
        [*base, "new-session", "-d", *size, "-c", str(folder), shell], check=True, env=environment()
    )
    try:
        until = time.monotonic() + PATIENCE_S
        while not (done.is_file() and done.read_text()):
            assert time.monotonic() < until, "the command goes on"
            time.sleep(0.05)
            if ctrl_c_at is not None and ctrl_c_at in _screen(base):
                subprocess.run([*base, "send-keys", "C-c"], check=True)
                ctrl_c_at = None
        return _screen(base).rstrip().split("\n")
    finally:
        subprocess.run([*base, "kill-server"], check=False, capture_output=True)
        done.unlink(missing_ok=True)


def _screen(tmux: Sequence[str]) -> str:
    screen = [*tmux, "capture-pane", "-p", "-S", "-"]
    return subprocess.run(screen, check=True, capture_output=True, text=True).stdout
