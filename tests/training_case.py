"""What the tests of training from Python share: prepared data, and a run of a second or so."""

import os
import subprocess
import sys
import time
from pathlib import Path

import cli_support
from cli_support import ROOT, hear_interrupts

RUN = {**cli_support.RUN, "evaluate_every_steps": 4, "evaluate_lengths": [8]}
# So many steps that a stop comes before the end.
STEPS = 3000
LONG = {**RUN, "stages": [dict(max_length=16, batch=4, steps=STEPS)], "log_every_steps": 1}
LONG |= {"evaluate_every_steps": 0, "checkpoint_every_steps": 2900}


def checkpoints(run_dir):
    return sorted(int(path.name.removeprefix("checkpoint-")) for path in run_dir.glob("checkpoint-*"))


def environment():
    """Of a child that imports the package."""
    paths = [str(ROOT / "python"), os.environ.get("PYTHONPATH", "")]
    return dict(os.environ, OMP_NUM_THREADS="1", PYTHONPATH=os.pathsep.join(filter(None, paths)))


def printed(*arguments, **options):
    """What Python prints that is called with these arguments; it must succeed."""
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=600, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def script(code, *, session=False):
    """Python with this code, and the package; a line of it is read with ``readline()``."""
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    options = dict(env=environment(), start_new_session=session, preexec_fn=hear_interrupts)  # as KeyboardInterrupt
    return subprocess.Popen([sys.executable, "-c", code], **pipes, **options)


def refuse_torch(code):
    """The code, where torch is not installed."""
    return "import sys; sys.modules['torch'] = None\n" + code


def ended(process):
    """Its exit code and what it wrote to standard error."""
    _, said = process.communicate(timeout=120)
    return process.returncode, said


def wait_until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened in a minute"
        time.sleep(0.02)


def children(process):
    """The numbers of its child processes."""
    status = [path.read_text() for path in Path("/proc").glob("[0-9]*/stat") if path.exists()]
    fields = [text.rpartition(")")[2].split() for text in status]
    numbers = [int(text.split()[0]) for text in status]
    return [number for number, field in zip(numbers, fields, strict=True) if int(field[1]) == process.pid]


def same_model(one, other):
    return (one / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()
