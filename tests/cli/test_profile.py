"""`pretrain --profile`: the trace and the table of some steps, and what is refused."""

import json
import re
from collections import defaultdict

import pytest

from cli_support import pretrain, refused, run, run_file

KEYS = dict(stages=[dict(max_length=16, batch=4, steps=8, accumulate=2)], checkpoint_every_steps=5, precision="float32")
KEYS |= dict(evaluate_every_steps=4)
STAGES = {"data", "forward", "backward", "sum of gradients", "optimizer"}


def command(prepared, folder, *more):
    return pretrain(prepared, run_file(folder / "run.json", **KEYS), folder / "run", *more)


@pytest.fixture(scope="module")
def profiled(prepared, tmp_path_factory):
    folder = tmp_path_factory.mktemp("profiled")
    done = run(*command(prepared, folder, "--profile", "4:5"))
    assert done.returncode == 0, done.stderr
    return folder / "run", done.stderr


def events(run_dir):
    trace = json.loads((run_dir / "profile-4-5.rank0.pt.trace.json").read_text())
    return [event for event in trace["traceEvents"] if event.get("ph") == "X"]


def test_the_trace_has_the_stages_of_the_steps(profiled):
    run_dir, said = profiled
    assert "profile-4-5.rank0.pt.trace.json" in said and not re.search(r"\.cpp:\d+\]", said), said
    stages = [event for event in events(run_dir) if event["cat"] == "user_annotation"]
    steps = {event["name"]: event for event in stages if event["name"].startswith("ProfilerStep")}
    assert set(steps) == {"ProfilerStep#4", "ProfilerStep#5"}
    for name, step in steps.items():
        inside = [e["name"] for e in stages if step["ts"] <= e["ts"] and e["ts"] + e["dur"] <= step["ts"] + step["dur"]]
        assert inside.count("forward") == inside.count("backward") == 2
        extra = {"evaluation"} if name == "ProfilerStep#4" else {"checkpoint"}
        assert set(inside) == STAGES | extra | {name}


def self_times(all_events):
    """Microseconds of each operator without those in it, and its calls."""
    found, calls = defaultdict(float), defaultdict(int)
    threads = defaultdict(list)
    for event in all_events:
        if event["cat"] in ("cpu_op", "user_annotation"):
            threads[event["tid"]].append(event)
    for of_thread in threads.values():
        stack = []
        for event in sorted(of_thread, key=lambda e: (e["ts"], -e["dur"])):
            while stack and stack[-1]["ts"] + stack[-1]["dur"] <= event["ts"]:
                stack.pop()
            if stack and stack[-1]["cat"] == "cpu_op":
                found[stack[-1]["name"]] -= event["dur"]
            if event["cat"] == "cpu_op":
                found[event["name"]] += event["dur"]
                calls[event["name"]] += 1
            stack.append(event)
    return found, calls


def test_the_table_is_that_of_the_trace(profiled):
    run_dir, _ = profiled
    text = (run_dir / "profile-4-5.rank0.txt").read_text()
    assert text.startswith("Steps 4 to 5, rank 0 of 1: milliseconds")
    found, calls = self_times(events(run_dir))
    rows = [line.split(maxsplit=3) for line in text.partition("operator, without")[2].splitlines()[1:]]
    assert len(rows) == 25
    whole = sum(found.values())
    for share, ms, times, name in rows:
        assert float(times) == calls[name] / 2, name
        # Of a trace in microseconds with three decimals.
        assert float(ms) == pytest.approx(found[name] / 2e3, abs=0.002), name
        assert float(share.rstrip("%")) == pytest.approx(100 * found[name] / whole, abs=0.2), name
    listed = [float(ms) for _, ms, _, _ in rows]
    assert listed == sorted(listed, reverse=True)
    assert listed[0] == pytest.approx(max(found.values()) / 2e3, abs=0.002)


def test_a_profile_changes_no_bits(profiled, prepared, tmp_path):
    assert run(*command(prepared, tmp_path)).returncode == 0
    assert not list((tmp_path / "run").glob("profile*"))
    for name in ("model.safetensors", "checkpoint-8/optimizer.safetensors"):
        assert (tmp_path / "run" / name).read_bytes() == (profiled[0] / name).read_bytes()


def test_steps_that_are_done_are_not_profiled(profiled, prepared):
    run_dir, _ = profiled
    done = run("pretrain", "--data", prepared / "data", "--output", run_dir, "--resume", "--profile", "2")
    assert done.returncode == 0 and "no profile: step 2 is done" in done.stderr
    assert not list(run_dir.glob("profile-2*"))


def test_what_is_refused(prepared, tmp_path):
    """Steps that the run does not have, and a name that something else has."""
    said = refused(*command(prepared, tmp_path, "--profile=4:9"))
    assert "[profile] the steps must be one of the run's 8" in said and not (tmp_path / "run" / "run.json").exists()
    (tmp_path / "run" / "profile-4-4.rank0.pt.trace.json" / "folder").mkdir(parents=True)
    run_file(tmp_path / "run" / "run.json", **KEYS)
    said = refused(*command(prepared, tmp_path, "--resume", "--profile", "4"))
    assert "[profile]" in said and "profile-4-4.rank0.pt.trace.json must be writable" in said
