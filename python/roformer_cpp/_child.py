"""Commands of the program `roformer` as child processes, and their errors as exceptions.

A command runs in a separate session, so that Ctrl-C reaches only Python, which forwards it. Otherwise the command
would receive two signals, and the second would end training before its checkpoint is written. If Python ends first, the
program gets SIGTERM from the kernel (cli/src/program.cpp).
"""

import errno
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from operator import index
from typing import Any

from . import _checks, _library

# How often what a run has written is looked at.
_INTERVAL_S = 0.05
_KEPT_MESSAGES = 1000
_CHUNK = 1 << 16  # bytes
_STOPPED = tuple(128 + number for number in (signal.SIGINT, signal.SIGTERM))
_INTERNAL = 3
# Parts of messages `[where] ..` that are about the content of files.
_OF_FILES = ("checkpoint", "config", "data", "shard", "state.json", "weights")
# A message of the program.
_MESSAGE = re.compile(r"\[([^\]]*)\] ")


class Child:
    """A command of the program while it runs. ``results`` are its JSON lines, ``messages`` its standard error."""

    def __init__(self, where: str, arguments: Sequence[str], verbose: bool, lines: Iterator[bytes] | None = None):
        """lines: its standard input."""
        self._where, self._verbose, self._lines = where, verbose, lines
        self.results: list[dict[str, Any]] = []
        self.messages: deque[str] = deque(maxlen=_KEPT_MESSAGES)
        program = _library.program()
        self._process = subprocess.Popen(
            [program, *arguments],
            stdin=subprocess.DEVNULL if lines is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**_library.program_environment(program), "ROFORMER_PARENT": str(os.getpid())},
            start_new_session=True,
        )
        self._selector = selectors.DefaultSelector()
        for pipe, take in ((self._process.stdout, self._take_result), (self._process.stderr, self._take_message)):
            self._selector.register(pipe, selectors.EVENT_READ, [take, b""])
        if lines is not None:
            os.set_blocking(self._process.stdin.fileno(), False)
            self._selector.register(self._process.stdin, selectors.EVENT_WRITE, b"")
        self._is_interrupted = False

    def follow(self, look: Callable[[], bool]) -> bool:
        """Waits for the end of the command, and calls ``look`` now and then and once after the end. The command is
        interrupted if ``look`` returns False, or if anything raises, and then the exception is passed on after the end.

        Returns:
            Whether it ran to its end; False if a signal stopped it.

        Raises:
            Exceptions of ``look``, KeyboardInterrupt, and the error of the command.
        """
        try:
            while self._read():
                if not look():
                    self._interrupt()
            self._process.wait()
            look()
        except BaseException:
            self._end()
            raise
        finally:
            self._selector.close()
            self._process.stdout.close()
            self._process.stderr.close()
            if self._process.stdin:
                self._process.stdin.close()
        return self._check()

    def _read(self) -> bool:
        """Takes what there is to read in the next moment. False: the command has closed its outputs."""
        for key, _ in self._selector.select(_INTERVAL_S):
            if key.fileobj is self._process.stdin:
                self._write(key)
                continue
            take, rest = key.data
            chunk = os.read(key.fd, _CHUNK)
            *lines, key.data[1] = (rest + chunk).split(b"\n")
            if not chunk:
                self._selector.unregister(key.fileobj)
                lines += [key.data[1]] * (key.data[1] != b"")
            for line in lines:
                take(line.decode(errors="replace"))
        return bool(self._selector.get_map())

    def _write(self, key: selectors.SelectorKey) -> None:
        """Writes as much as fits into the pipe. Closes it after the last line, or when the command stops reading."""
        chunk = key.data
        while len(chunk) < _CHUNK and (line := next(self._lines, None)) is not None:
            chunk += line
        try:
            written = os.write(key.fd, chunk) if chunk else 0
        except BrokenPipeError:
            chunk, written = b"", 0
        if chunk:
            self._selector.modify(key.fileobj, key.events, chunk[written:])
        else:
            self._selector.unregister(key.fileobj)
            self._process.stdin.close()

    def _take_result(self, line: str) -> None:
        self.results.append(json.loads(line))

    def _take_message(self, line: str) -> None:
        self.messages.append(line)
        if self._verbose:
            print(line, file=sys.stderr, flush=True)
        elif line.startswith("warning: "):
            warnings.warn(f"[{self._where}] {line.removeprefix('warning: ')}", RuntimeWarning, stacklevel=6)

    def _interrupt(self) -> None:
        """Sends SIGTERM, once. A job in the background of a shell ignores SIGINT, and its children do, too."""
        if not self._is_interrupted:
            self._is_interrupted = True
            self._process.terminate()

    def _end(self) -> None:
        """Interrupts the command and waits for its end; a second Ctrl-C ends it immediately."""
        try:
            self._interrupt()
            for key in list(self._selector.get_map().values()):
                if key.events == selectors.EVENT_WRITE:  # stays open: closed, it would be the end of the input
                    self._selector.unregister(key.fileobj)
            while self._read():
                pass
            self._process.wait()
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise

    def _check(self) -> bool:
        code = self._process.returncode
        if code == 0:
            return True
        if code in _STOPPED or (code == -signal.SIGTERM and self._is_interrupted):
            return False
        if code < 0:
            name = signal.Signals(-code).name
            raise RuntimeError(f"[{self._where}] the program must end by itself, got signal {-code} ({name})")
        raise _error(code, self._message())

    def _message(self) -> str:
        """The last message, of one or several lines."""
        lines = [line for line in self.messages if line]
        first = next((i for i in reversed(range(len(lines))) if _MESSAGE.match(lines[i])), 0)
        return "\n".join(lines[first:])


def _error(code: int, message: str) -> Exception:
    """The exception of a command that failed (docs/python.md has the rule)."""
    match = _MESSAGE.match(message)
    where = match[1] if match else ""
    if where == "program":
        return ImportError(message)
    if where == "memory":
        return MemoryError(message)
    if message.endswith(os.strerror(errno.ENOENT)):
        return FileNotFoundError(message)
    if code == _INTERNAL or where in _OF_FILES or "/" in where:
        return RuntimeError(message)
    return ValueError(message)


def run(
    command: str,
    options: Sequence[str],
    *,
    verbose: bool = False,
    look: Callable[[], bool] = lambda: True,
    lines: Iterator[bytes] | None = None,
) -> tuple[Child, bool]:
    """Runs a command, with these lines as its standard input, to its end. Returns it with the result of
    :meth:`Child.follow`."""
    child = Child(command, [command, *options], _checks.boolean(command, "verbose", verbose), lines)
    return child, child.follow(look)


# Arguments that a command lacks as options, and the options with other names than their arguments.
_NOT_OPTIONS = ("callback", "run", "verbose")
_RENAMED = {"dictionary": "dict", "user_dictionaries": "user_dict"}


def options(where: str, given: dict[str, Any]) -> list[str]:
    """The options of a command from the arguments of its function: None and False are left out, True is a flag, a list
    repeats the option, and a dictionary repeats it with ``name=value``. ``quotes=False`` is ``--no-quotes``.

    Args:
        given: a copy of ``locals()``: before Python 3.13 a debugger adds later variables to that dictionary.

    Raises:
        TypeError: a value is not a number, text or path, nor a list of such values.
        ValueError: an empty text, which the command line cannot give.
    """
    arguments = []
    if "quotes" in given:
        given = given | {"no_quotes": not _checks.boolean(where, "quotes", given["quotes"]), "quotes": None}
    for name, value in given.items():
        if name in _NOT_OPTIONS:
            continue
        option = "--" + _RENAMED.get(name, name).replace("_", "-")
        if value is True:
            arguments.append(option)
        elif value is not None and value is not False:
            if isinstance(value, dict):
                value = [f"{key}={_option_text(where, name, each)}" for key, each in value.items()]
            several = value if isinstance(value, (list, tuple)) else [value]
            arguments += [f"{option}={_option_text(where, name, each)}" for each in several]
    return arguments


def _option_text(where: str, name: str, value: Any) -> str:
    if isinstance(value, (str, bytes, os.PathLike)):
        if text := os.fsdecode(value):
            return text
        raise ValueError(f"[{where}] {name} must not be empty, got ''")
    try:
        if not isinstance(value, bool):
            return str(index(value))
    except TypeError:
        with suppress(TypeError):
            return repr(float(value))
    raise TypeError(f"[{where}] {name} must be a number, a text, a path or a list of such, got {_checks.kind(value)}")
