"""The directory of a run of `train_embedding`: its options, and checkpoints from which it continues."""

import hashlib
import json
import signal
import sys
from argparse import Namespace
from contextlib import suppress
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

_FREE = ("output", "resume", "save_every", "keep")  # options that change no weights


class Run(TrainerCallback):
    """The directory of a run. In its ``with`` statement the first SIGINT or SIGTERM ends training with a checkpoint."""

    checkpoint: str | None = None  # from which it continues
    received = 0

    def __init__(self, where: str, options: Namespace):
        self._file, output = options.output / "options.json", options.output
        self._options = {name: _kept(value) for name, value in vars(options).items() if name not in _FREE}
        if output.exists() and not output.is_dir():
            raise NotADirectoryError(f"[{where}] the output must be a directory, got the file {output}")
        if not output.exists() or not any(output.iterdir()):
            return
        if not options.resume or not self._file.exists():
            hint = "; give --resume to continue that run" if self._file.exists() else ""
            raise FileExistsError(f"[{where}] the output must be a new or an empty directory, got {output}{hint}")
        try:
            of_run = dict(json.loads(self._file.read_text(encoding="utf-8")))
        except (ValueError, TypeError):
            raise ValueError(f"[{where}] {self._file} must have the options of the run, got a damaged file") from None
        for name, value in self._options.items():
            if of_run.get(name) != value:
                option = "--" + name.replace("_", "-")
                raise ValueError(f"[{where}] {option} must be that of the run, {of_run.get(name)}, got {value}")
        paths = [path for path in output.glob("checkpoint-*") if path.name.partition("-")[2].isdecimal()]
        for path in sorted(paths, key=lambda path: int(path.name.partition("-")[2])):
            with suppress(OSError, ValueError, KeyError, TypeError):  # of one that was not written to its end
                json.loads((path / "trainer_state.json").read_text(encoding="utf-8"))["global_step"]
                if any(path.rglob("*.safetensors")):
                    self.checkpoint = str(path)

    def __enter__(self) -> "Run":
        heard = [each for each in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(each) != signal.SIG_IGN]
        self._handlers = {number: signal.signal(number, self._note) for number in heard}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _note(self, number: int, _: object) -> None:
        self.received = number
        self.__exit__()

    def on_train_begin(self, _: TrainingArguments, state: TrainerState, *__: object, **___: object) -> None:
        if state.global_step:
            print(f"continuing at step {state.global_step} of {state.max_steps}", file=sys.stderr)

    def on_step_end(self, _: TrainingArguments, state: TrainerState, control: TrainerControl, **__: object) -> None:
        if self.received:
            control.should_save = control.should_training_stop = True
            print(f"stopped at step {state.global_step} of {state.max_steps}; --resume continues", file=sys.stderr)
        if control.should_save:
            part = self._file.with_suffix(".part")
            part.write_text(json.dumps(self._options, indent=2) + "\n", encoding="utf-8")
            part.replace(self._file)


def _kept(value: Any) -> Any:
    if not isinstance(value, Path):
        return value
    content = f" (SHA-256 {hashlib.sha256(value.read_bytes()).hexdigest()[:16]})" if value.is_file() else ""
    return f"{value.name if content else value}{content}"
