"""One program, torch on demand: which libraries a command loads, and what is said where the training library or torch
is missing."""

import json
import os
import re
import shutil
import subprocess

import numpy as np
import pytest

from cli_support import PROGRAM, make_corpus, needs_program

OF_TORCH = re.compile(r"/lib(torch|c10|roformer_(training|ops|nn))[^/]*$")
TRAINING = ["add-words", "pretrain", "finetune", "train-translation", "compare", "bench"]


@pytest.fixture(scope="module")
def arguments(trained, tmp_path_factory):
    """By name: the arguments of each command that needs no torch."""
    folder = tmp_path_factory.mktemp("without")
    make_corpus(folder / "corpus")
    np.save(folder / "ids.npy", np.full((2, 5), 7))
    corpus, model = ["--input", folder / "corpus"], ["--model", trained]
    return {
        "--help": [],
        "--version": [],
        "tokenize": model,
        "vocab": [*corpus, "--size", 50, "--output", folder / "vocab.txt"],
        "prepare": [*corpus, *model, "--output", folder / "data"],
        "fill-mask": [*model, "--text", "abc [MASK]"],
        "forward": [*model, "--ids", folder / "ids.npy", "--output", folder / "out.npy"],
    }


def called(program, *arguments, **settings):
    environment = dict(os.environ, OMP_NUM_THREADS="1", **settings)
    command = [program, *map(str, arguments)]
    return subprocess.run(command, input="abc\n", capture_output=True, text=True, env=environment, timeout=600)


def loaded(*command):
    """The libraries that a call loads, as the dynamic linker reports them."""
    done = called(PROGRAM, *command, LD_DEBUG="files")
    assert done.returncode == 0, done.stderr[-2000:]
    return re.findall(r"calling init: (\S+)", done.stderr)


def test_nothing_of_torch_is_loaded(arguments):
    for command in (["fill-mask", "--help"], *([name, *more] for name, more in arguments.items())):
        libraries = loaded(*command)
        assert any(path.endswith("libroformer_cli.so") for path in libraries), command
        assert [path for path in libraries if OF_TORCH.search(path)] == [], command
    libraries = loaded("compare", "--help")  # which trains
    assert {"libroformer_training.so", "libtorch_cpu.so"} <= {path.rsplit("/", 1)[1] for path in libraries}


@pytest.fixture
def program_alone(tmp_path):
    """A copy of the program and its commands, without the training library beside them."""
    needs_program()
    (tmp_path / "lib").mkdir()
    shutil.copy2(PROGRAM, tmp_path / "roformer")
    shutil.copy2(PROGRAM.parent / "lib" / "libroformer_cli.so", tmp_path / "lib")
    return tmp_path / "roformer"


def test_without_the_training_library_the_rest_works(program_alone, arguments):
    for name in ("--help", "tokenize", "fill-mask"):
        done = called(program_alone, name, *arguments[name])
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == called(PROGRAM, name, *arguments[name]).stdout


def test_without_the_training_library_its_commands_say_so(program_alone):
    library = "libroformer_training.so"
    for command in TRAINING:
        missing = f"[program] {command} needs {library} beside libroformer_cli.so"
        done = called(program_alone, command, "--frobnicate")
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(missing)
        assert f"{program_alone.parent}/lib/{library}: cannot open" in done.stderr
        done = called(program_alone, command, "--help")
        assert done.returncode == 0 and f"Example:\n  roformer {command}" in done.stdout
        assert f"the help of {command} lacks its own options: {missing}" in done.stderr


def test_without_the_training_library_info_says_so(program_alone):
    done = called(program_alone, "info")
    info = json.loads(done.stdout)
    assert done.returncode == 0 and info["version"] and info["instructions"]["kernels"]
    assert "needs libroformer_training.so" in info["training"] and "torch" not in info["libraries"]
    listing = called(program_alone, "info", "--encodings")
    assert (listing.returncode, listing.stdout) == (1, "") and listing.stderr.startswith("[program] ")


def test_without_torch(tmp_path, arguments):
    """A file that is no library, where torch is looked for first."""
    needs_program()
    (tmp_path / "libtorch_cpu.so").write_bytes(b"")
    done = called(PROGRAM, "pretrain", LD_LIBRARY_PATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("[program] pretrain needs ") and "libtorch_cpu.so" in done.stderr
    assert called(PROGRAM, "tokenize", *arguments["tokenize"], LD_LIBRARY_PATH=str(tmp_path)).returncode == 0
