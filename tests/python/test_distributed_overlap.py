"""When gradients are summed and profiles of several processes, and what becomes of a checkpoint that is being written
when a job fails."""

import json
import re
import shutil

import pytest

from cli_support import metrics
from job_case import RUN, bits, errors, finish, pretrain

STEPS = 6
# More than one bucket of gradients: one of them alone has 2^16 numbers at least.
WIDE = {
    "model": {**RUN["model"], "hidden_size": 64, "intermediate_size": 512, "num_hidden_layers": 3},
    "stages": [dict(max_length=16, batch=8, accumulate=4, steps=STEPS)],
    "checkpoint_every_steps": 3,
}


@pytest.fixture(scope="module")
def profiled(data, tmp_path_factory):
    """Two processes with and without overlap, steps 3 and 4 of each profiled."""
    folder = tmp_path_factory.mktemp("profiled")
    for name, overlap in (("hidden", True), ("after", False)):
        finish(pretrain(2, data, folder, name, "--profile", "3:4", run={**WIDE, "reduce_overlap": overlap}))
    return folder


def trace_of(run_dir, rank):
    return json.loads((run_dir / f"profile-3-4.rank{rank}.pt.trace.json").read_text())


def ranges(trace, name):
    return [(e["ts"], e["ts"] + e["dur"]) for e in trace["traceEvents"] if e.get("ph") == "X" and e["name"] == name]


def is_in(inner, outer):
    return any(begin <= inner[0] and inner[1] <= end for begin, end in outer)


def test_overlap_changes_no_bits(profiled, data, tmp_path):
    finish(pretrain(2, data, tmp_path, "run", run=WIDE))
    assert bits(profiled / "hidden") == bits(profiled / "after") == bits(tmp_path / "run")
    assert metrics(profiled / "hidden") == metrics(profiled / "after") == metrics(tmp_path / "run")


def test_a_run_goes_on_with_or_without_overlap(profiled, data, tmp_path):
    shutil.copytree(profiled / "hidden", tmp_path / "half")
    for overlap in (False, True):
        shutil.rmtree(tmp_path / "half" / f"checkpoint-{STEPS}")
        (tmp_path / "half" / "model.safetensors").unlink()
        finish(pretrain(2, data, tmp_path, "half", "--resume", run={**WIDE, "reduce_overlap": overlap}))
        assert bits(tmp_path / "half") == bits(profiled / "hidden")


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(("name", "stage"), [("hidden", "backward"), ("after", "sum of gradients")])
def test_sums_begin_in_the_backward_pass_or_after_it(profiled, rank, name, stage):
    """With overlap all but the buckets of weights without a gradient."""
    trace = trace_of(profiled / name, rank)
    sums = ranges(trace, "c10d::allreduce_")
    assert len(sums) >= 2 * 2
    inside = [each for each in sums if is_in(each, ranges(trace, stage))]
    assert len(inside) == len(sums) if name == "after" else len(inside) > len(sums) / 2


@pytest.mark.parametrize("rank", [0, 1])
def test_every_rank_has_a_profile(profiled, rank):
    trace = trace_of(profiled / "hidden", rank)
    assert trace["distributedInfo"] == {"rank": rank, "world_size": 2}
    assert len(ranges(trace, "ProfilerStep#3")) == len(ranges(trace, "ProfilerStep#4")) == 1
    assert not ranges(trace, "ProfilerStep#5")
    # Two of four micro-batches in each of two steps.
    assert len(ranges(trace, "forward")) == len(ranges(trace, "backward")) == 4
    table = (profiled / "hidden" / f"profile-3-4.rank{rank}.txt").read_text()
    assert table.startswith(f"Steps 3 to 4, rank {rank} of 2") and "sum of gradients" in table


def test_a_checkpoint_in_writing_is_kept_when_the_loss_is_not_finite(data, tmp_path):
    """The update of step 4 makes weights of 1e30; its checkpoint is begun, and step 5 fails."""
    schedule = dict(kind="piecewise", learning_rate=1.0, points=[[0, 0], [3, 0], [4, 1e30], [5, 0]])
    run = dict(stages=[dict(max_length=16, batch=8, accumulate=4, steps=9)], schedule=schedule, clip_norm=0)
    run |= dict(checkpoint_every_steps=4, evaluate_every_steps=0)
    errors(pretrain(2, data, tmp_path, "run", run=run), r"must be finite, got .* at step 5")
    assert {path.name for path in (tmp_path / "run").glob("*checkpoint-*")} == {"checkpoint-4"}
    assert re.search(r'"step": 4', (tmp_path / "run" / "checkpoint-4" / "state.json").read_text())
