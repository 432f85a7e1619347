"""Jobs of several processes, as torchrun starts them but without its agent."""

import atexit
import functools
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import cli_support
from cli_support import MODEL, ROOT
from training_case import wait_until

STEPS = 12
RUN = {
    **cli_support.RUN,
    "model": {**MODEL, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1},
    "stages": [dict(max_length=16, batch=8, accumulate=4, steps=STEPS)],
    "checkpoint_every_steps": 4,
    "evaluate_every_steps": 6,
    "precision": "float32",
}


def free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


@functools.cache
def server(*command):
    """A process of Python that calls fork_server.serve."""
    environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHONPATH=f"{ROOT / 'python'}{os.pathsep}{ROOT / 'tests'}")
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    process = subprocess.Popen([sys.executable, *command], env=environment, **pipes)
    atexit.register(process.communicate)  # which ends it
    return process


class Forked:
    """As subprocess.Popen, of a server's ``main(*arguments)``."""

    def __init__(self, command, *arguments, environment, cwd="."):
        self.server, self.returncode, self.folder = server(*command), None, tempfile.TemporaryDirectory()
        self.outputs = [f"{self.folder.name}/{name}" for name in ("out", "err")]
        call = dict(arguments=arguments, environment=environment, cwd=str(Path(cwd).resolve()), outputs=self.outputs)
        self.pid = self._ask(call)

    def _ask(self, call):
        self.server.stdin.write(json.dumps(call) + "\n")
        self.server.stdin.flush()
        return json.loads(self.server.stdout.readline())

    def poll(self):
        if self.returncode is None:
            self.returncode = self._ask(self.pid)
        return self.returncode

    def send_signal(self, number):
        os.kill(self.pid, number)

    def communicate(self, timeout):
        wait_until(lambda: self.poll() is not None, timeout)
        return [Path(path).read_text() for path in self.outputs]


MAIN = "import fork_server; from roformer_cpp.distributed import main; import torch; fork_server.serve(main)"


def start(arguments, rank, size, port, cwd=".", preexec_fn=None):
    """One process of a job; rank None: a process alone. Forked, unless it is the first of a command that torchrun does
    not start in test_distributed.py."""
    name, *words = map(str, arguments)
    places = dict(RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    if rank is not None and preexec_fn is None and (rank > 0 or name == "pretrain"):
        return Forked(("-c", MAIN), name, words, environment=places, cwd=cwd)
    environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHONPATH=str(ROOT / "python"))
    environment |= places if rank is not None else {}
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    command = [sys.executable, "-m", f"roformer_cpp.{name}", *words]
    return subprocess.Popen(command, env=environment, cwd=cwd, preexec_fn=preexec_fn, **pipes)


def job(size, *arguments, of_rank=None, before=None):
    """Starts `size` processes; of_rank: arguments of single ranks instead, before: what single ones do first."""
    port = free_port()
    return [
        start((of_rank or {}).get(rank, arguments), rank, size, port, preexec_fn=(before or {}).get(rank))
        for rank in range(size)
    ]


def outcomes(processes, seconds=120):
    """(exit code, stdout, stderr) of each rank."""
    said = [process.communicate(timeout=seconds) for process in processes]
    return [(process.returncode, *texts) for process, texts in zip(processes, said, strict=True)]


def finish(processes):
    """What the first rank printed, where all ended well."""
    results = outcomes(processes)
    assert [code for code, _, _ in results] == [0] * len(results), results
    assert [out for _, out, _ in results[1:]] == [""] * (len(results) - 1)
    return [json.loads(line) for line in results[0][1].splitlines()]


def bits(run_dir):
    return (run_dir / "model.safetensors").read_bytes()


def errors(processes, first, code=1):
    """What is said, by the first rank alone."""
    results = outcomes(processes)
    assert [each for each, _, _ in results] == [code] * len(results), results
    assert not any("[" in said for _, _, said in results[1:]), results
    (line,) = [line for line in results[0][2].splitlines() if line.startswith("[")]
    assert re.search(first, line) and line == line.rstrip(), line


def pretrain(size, data, folder, name, *more, **options):
    config = cli_support.run_file(Path(f"{folder / name}.json"), **{**RUN, **options.pop("run", {})})
    return job(size, "pretrain", "--config", config, "--data", data, "--output", folder / name, *more, **options)
