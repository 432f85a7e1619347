"""scripts/quickstart.sh on a person's own text, with the set-up taken as done: paths, tiny corpora, going on. A copy of
the script runs beside a link to the built program, so that nothing is installed or built."""

import json
import os
import subprocess
import sys

import pytest

from cli_support import PROGRAM, ROOT, make_corpus, run_file

LINES = "\n".join(f"The people number {i} of the United States, and their café." for i in range(12))


@pytest.fixture
def house(tmp_path):
    root = tmp_path / "my house"
    for folder in ("scripts", "build/release", "examples"):
        (root / folder).mkdir(parents=True)
    (root / "scripts" / "quickstart.sh").write_bytes((ROOT / "scripts" / "quickstart.sh").read_bytes())
    (root / "scripts" / "setup.sh").write_text("#!/bin/sh\n")
    for script in (root / "scripts").iterdir():
        script.chmod(0o755)
    (root / "build" / "release" / "roformer").symlink_to(PROGRAM)
    (root / "python").symlink_to(ROOT / "python")
    run_file(root / "examples" / "quickstart.json")
    return root


def quickstart(root, *arguments, cwd=None, **more):
    command = [root / "scripts" / "quickstart.sh", *arguments]
    environment = dict(os.environ, ROFORMER_PYTHON=sys.executable, OMP_NUM_THREADS="1", PYTHONPATH="", **more)
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd or root, timeout=120, env=environment)


def assert_done(done, run):
    assert done.returncode == 0, done.stderr
    assert json.loads((run / "evaluation.json").read_text())["predicted_tokens"] > 0
    assert len((run / "fill-mask.jsonl").read_text().splitlines()) == 3
    assert (run / "loss.png").stat().st_size > 0 and (run / "model" / "model.safetensors").exists()


def test_a_directory_and_a_second_time(house):
    make_corpus(house / "some texts", documents=2)
    done = quickstart(house, "../some texts/", cwd=house / "scripts")
    assert_done(done, house / "runs" / "some texts")
    (house / "runs" / "some texts" / "model" / "vocab.txt").unlink()  # as if killed before the last file
    again = quickstart(house, house / "some texts")
    assert_done(again, house / "runs" / "some texts")
    assert "resuming at step 6 of 6" in again.stderr

    make_corpus(house / "elsewhere" / "some texts", documents=2)
    assert "give another RUN_DIR" in quickstart(house, "elsewhere/some texts").stderr
    assert "/seed" in quickstart(house, "some texts", ROFORMER_SEED="2").stderr


def test_a_small_file_without_blank_lines_or_utf8(house):
    (house / "a b.txt").write_bytes(LINES.encode("latin-1"))
    assert_done(quickstart(house, "a b.txt", "my run"), house / "my run")


def test_what_it_refuses(house):
    (house / "line.txt").write_text("one line")
    done = quickstart(house, "line.txt")
    assert done.returncode == 1 and "at least two lines" in done.stderr
    done = quickstart(house, "nowhere")
    assert done.returncode == 1 and "got nowhere" in done.stderr
    done = quickstart(house, "--help", cwd=house / "scripts")
    assert done.returncode == 0 and "own text" in done.stderr
    assert quickstart(house, "a", "b", "c").returncode == 2
