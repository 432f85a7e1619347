"""What the tests of the command line share: the program, a tiny corpus and run file, and how to call it."""

import json
import os
import pty
import random
import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = Path(os.environ.get("ROFORMER_BUILD_DIR", ROOT / "build" / "release")) / "roformer"

MODEL = dict(
    hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24, max_position_embeddings=32
)


def run(*arguments, stdin=None, threads=1, **options):
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads))
    return subprocess.run(
        [PROGRAM, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=600,  # what takes longer hangs
        env=environment,
        **options,
    )


def hear_interrupts():
    """The preexec_fn of a child that gets SIGINT: where the tests run in the background of a shell, they and their
    children ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def needs_parquet():
    """Skips where the program was built without Apache Arrow, as wheels are."""
    if "arrow" not in results("info")[0]["libraries"]:
        pytest.skip("NOT TESTED: the program was built without Apache Arrow")


def needs_program():
    """Skips where `roformer` is the script of an installed package, which finds its libraries by itself."""
    with PROGRAM.open("rb") as file:
        if file.read(2) == b"#!":
            pytest.skip("NOT TESTED: roformer is the script of a package")


def on_terminal(*arguments, stream="stderr"):
    """Runs a command that must succeed with one of its outputs on a terminal; what that was sent."""
    ours, theirs = pty.openpty()
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: theirs}
    child = subprocess.Popen([PROGRAM, *map(str, arguments)], env=dict(os.environ, OMP_NUM_THREADS="1"), **streams)
    os.close(theirs)
    sent = b""
    while True:
        try:
            sent += os.read(ours, 65536)
        except OSError:  # nobody holds the other end
            break
    os.close(ours)
    assert child.wait(timeout=600) == 0, sent
    return sent.decode()


def results(*arguments, **options):
    """Runs a command that must succeed; its JSON lines."""
    done = run(*arguments, **options)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def lines_of(path):
    """The values of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]


def embed(model, output, *inputs, **options):
    """What `embed` reports that must succeed, and replace its output."""
    return results("embed", "--model", model, "--input", *inputs, "--output", output, "--overwrite", **options)[0]


def state_of(output):
    """How much of an output of `embed` that was interrupted is kept."""
    path = output.with_name(output.name + ".part.json")
    return json.loads(path.read_text()) if path.exists() else {"rows": 0}


def refused(*arguments, code=1, **options):
    """Runs a command that must fail with `code`, without results; its message."""
    done = run(*arguments, **options)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    assert done.stdout == ""
    return done.stderr


def wait_for(condition, child=None, seconds=60):
    """Waits until something holds, while a process runs, if one is given."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        assert child is None or child.poll() is None, "the process has ended"
        time.sleep(0.001)


def started(*arguments, stdin=None, threads=1):
    """A process of the program; what is given as its standard input is written, and the input stays open."""
    pipe = subprocess.PIPE
    child = subprocess.Popen(
        [PROGRAM, *map(str, arguments)],
        stdin=subprocess.DEVNULL if stdin is None else pipe,
        stdout=pipe,
        stderr=pipe,
        text=True,
        env=dict(os.environ, OMP_NUM_THREADS=str(threads)),
        preexec_fn=hear_interrupts,
    )
    if stdin is not None:
        child.stdin.write(stdin)
        child.stdin.flush()
    return child


def stopped(number, condition, *arguments, **options):
    """Sends a signal to a command once something holds; its exit code, output and messages."""
    child = started(*arguments, **options)
    try:
        wait_for(condition, child, seconds=120)
        child.send_signal(number)
        code = child.wait(timeout=60)  # while its standard input is open
        out, said = child.communicate()
    finally:
        child.kill()
        child.wait()
    return code, out, said


def size_limit(size):
    """The preexec_fn of a child whose files may have that many bytes."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def make_corpus(folder, documents=16, seed=1):
    rng = random.Random(seed)
    words = ["".join(rng.choices("abcdefgh", k=rng.randint(2, 6))) for _ in range(120)]
    folder.mkdir(parents=True)
    for number in range(documents):
        lines = [" ".join(rng.choices(words, k=10)) for _ in range(rng.randint(2, 12))]
        (folder / f"{number:02}.txt").write_text("\n".join(lines))


def make_data(folder):
    """corpus/, vocabulary/ and data/ in a folder."""
    make_corpus(folder / "corpus")
    results("vocab", "--input", folder / "corpus", "--size", 150, "--output", folder / "vocabulary" / "vocab.txt")
    prepare(folder, folder / "data")


def prepare(folder, output, *more, inputs=None, held_out=0.2, **options):
    """What `prepare` reports of the folder's corpus, or of other inputs, with its vocabulary."""
    given = ["--input", *(inputs or [folder / "corpus"]), "--model", folder / "vocabulary", "--output", output]
    return results("prepare", *given, "--valid-fraction", held_out, *more, **options)[0]


def pretrain(folder, config, output, *more):
    """The arguments of `pretrain` on the folder's data."""
    return ["pretrain", "--data", folder / "data", "--config", config, "--output", output, *more]


# A run file of pretrain, of about a second.
RUN = dict(
    model=MODEL,
    stages=[dict(max_length=16, batch=4, steps=6)],
    schedule=dict(kind="linear", learning_rate=1e-3, warmup_steps=2),
    log_every_steps=2,
    checkpoint_every_steps=2,
)


def run_file(path, **keys):
    """With init_from, without a model."""
    run = {key: value for key, value in RUN.items() if key != "model" or "init_from" not in keys}
    path.write_text(json.dumps(run | keys))
    return path


TIMES = ("seconds", "tokens_per_second", "processes", "communication_seconds", "exposed_seconds")
TIMES += ("slowest_rank", "slowest_seconds")


def untimed(lines):
    return [{key: value for key, value in line.items() if key not in TIMES} for line in lines]


def metrics(run_dir, *types):
    """The lines of metrics.jsonl, or those of some types, without the times."""
    lines = untimed(lines_of(run_dir / "metrics.jsonl"))
    return [line for line in lines if not types or line["type"] in types]
