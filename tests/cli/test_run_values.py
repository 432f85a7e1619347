"""Values of the run file on the command line, run files in YAML, and groups of parameters: what is refused, and that
they are the values that train. Groups against float64 are tests/oracles/test_loss_curves.py's."""

import json
import re
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file

from cli_support import ROOT, RUN, needs_program, pretrain, refused, results, run, run_file
from roformer_cpp._options import yaml_options
from tolerances import SIGMAS
from training_case import same_model

GROUP = dict(parameters="position_encoding.*", learning_rate=10.0, weight_decay=0.0)
CHANGED = dict(stages=[dict(max_length=16, batch=4, steps=3)], schedule={**RUN["schedule"], "learning_rate": 2e-3})
CHANGED |= dict(model={**RUN["model"], "position_encoding": "t5"}, precision="float32", groups=[GROUP])
VALUES = ["stages.0.steps=3", "schedule.learning_rate=2e-3", "model.position_encoding=t5", "precision=float32"]
VALUES += [f"groups={json.dumps([GROUP])}"]
YAML = """
model: {hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2, intermediate_size: 24,
        max_position_embeddings: 32, position_encoding: t5}
stages:
  - {max_length: 16, batch: 4, steps: 3}
schedule: {kind: linear, learning_rate: 2e-3, warmup_steps: 2}
precision: float32
log_every_steps: 2
checkpoint_every_steps: 2
groups:
  - parameters: position_encoding.*
    learning_rate: 1e1
    weight_decay: 0
"""


@pytest.fixture(scope="module")
def whole(prepared, tmp_path_factory):
    """A run whose file has all values."""
    folder = tmp_path_factory.mktemp("whole")
    results(*pretrain(prepared, run_file(folder / "run.json", **CHANGED), folder / "run"))
    return folder / "run"


def same_run(one, other):
    return same_model(one, other) and (one / "run.json").read_bytes() == (other / "run.json").read_bytes()


def test_values_on_the_command_line_are_those_of_the_file(prepared, whole, tmp_path):
    config = run_file(tmp_path / "run.json")
    results(*pretrain(prepared, config, tmp_path / "run", *VALUES))
    assert same_run(tmp_path / "run", whole)
    # Resumed, they must be the run's.
    results(*pretrain(prepared, config, tmp_path / "run", "--resume", *VALUES))
    message = refused(*pretrain(prepared, config, tmp_path / "run", "--resume", *VALUES[:-1]))
    assert "the run file must be the run's own, got nothing at /groups where there was [{" in message


def test_a_run_file_in_yaml(prepared, whole, tmp_path, monkeypatch):
    """The program starts itself inside Python. A value of the command line is the stronger one."""
    needs_program()
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "python"))
    monkeypatch.setenv("ROFORMER_PYTHON", sys.executable)
    config = tmp_path / "run.yaml"
    config.write_text(YAML)
    done = run(*pretrain(prepared, config, tmp_path / "run", "stages.0.steps=3"))
    assert done.returncode == 0 and "run.yaml is read by Python: " in done.stderr, done.stderr
    assert same_run(tmp_path / "run", whole)
    config.write_text("stages: [{step: 3}]")
    assert 'got "stages[0].step"' in refused(*pretrain(prepared, config, tmp_path / "other"))
    missing = refused(*pretrain(prepared, tmp_path / "no.yml", tmp_path / "other"))
    assert missing.endswith(f"[{tmp_path / 'no.yml'}] the file must be readable, got: No such file or directory\n")
    for text, words in (
        (YAML + "precision: float32\n", "must be YAML, got: the key precision twice"),
        ("a: [", "must be YAML, got: while parsing"),
        ("- 1", "must be a mapping of keys, got [1]"),
    ):
        config.write_text(text)
        with pytest.raises(ValueError, match=re.escape(f"[{config}] the file {words}")):
            yaml_options(str(config))


def test_what_is_refused(prepared, tmp_path):
    config = run_file(tmp_path / "run.json")
    nothing = "groups[1].parameters must match a parameter of the model that no earlier group has, got"
    for value, rule in (
        ("schedule.learning_rat=1", 'got "schedule.learning_rat"'),
        ("precision=\udcff", 'a replaced value must be UTF-8, got "precision=\\xff"'),  # the byte 255
        ("seed", 'a replaced value must be written as key=value, got "seed"'),
        ('groups=[{"parameters": "*.bias"}, {"parameters": "*.layer.9.*"}]', f'{nothing} "*.layer.9.*"'),
        ('groups=[{"parameters": "*.bias"}, {"parameters": "*.dense.bias"}]', f'{nothing} "*.dense.bias"'),
    ):
        message = refused(*pretrain(prepared, config, tmp_path / "run", value))
        assert message.startswith("[run file] ") and rule in message
    assert not (tmp_path / "run" / "run.json").exists()
    for command in ("finetune", "train-similar"):  # where the short name is known, and other options are missing
        assert "--precision" not in refused(command, "--precision", "bf16", code=2)


def initial_weights(prepared, folder, encoding, seed, **ranges):
    """Weights of a run whose learning rate is 0."""
    groups = [dict(parameters=name, learning_rate=0, initializer_range=value) for name, value in ranges.items()]
    groups += [dict(parameters="*", learning_rate=0)]
    model = {**RUN["model"], "position_encoding": encoding, "num_hidden_layers": 2}
    config = run_file(folder / "run.json", model=model, groups=groups, seed=seed)
    out = folder / f"run-{len([*folder.iterdir()])}"
    results(*pretrain(prepared, config, out))
    return load_file(out / "model.safetensors")


def test_initial_values_of_a_group(prepared, tmp_path):
    """They depend on the seed and the name alone: other encodings and groups leave all other weights as they are."""
    words, tables = "roformer.embeddings.word_embeddings.weight", "position_encoding.relative_attention_bias"
    ranges = {"*word_embeddings.weight": 0.5, "position_encoding.*": 3.0}
    runs = (("t5", 1, {}), ("t5", 1, ranges), ("t5", 2, ranges), ("shaw", 1, ranges))
    plain, drawn, other, again = (initial_weights(prepared, tmp_path, *given, **more) for *given, more in runs)
    assert sorted(drawn) == sorted(plain) and tables in drawn
    for name, x in drawn.items():
        assert np.array_equal(x, plain[name]) == (name not in (words, tables)), name
        scaled = ".query." in name or ".key." in name  # of t5
        assert scaled or name not in again or np.array_equal(x, again[name]), name
    for name, spread in ((words, 0.5), (tables, 3.0)):
        x = drawn[name][np.any(drawn[name] != 0, -1)].astype(np.float64)
        assert len(drawn[name]) - len(x) == (name == words)  # the row of padding remains 0
        assert not np.array_equal(drawn[name], other[name])
        # Of n numbers: their mean and the mean of their squares, within five standard deviations.
        assert abs(x.mean()) < SIGMAS * spread / x.size**0.5
        assert abs((x**2).mean() / spread**2 - 1) < SIGMAS * (2 / x.size) ** 0.5
    groups = json.dumps([dict(parameters="*.bias", initializer_range=0.1)])
    message = refused(*pretrain(prepared, run_file(tmp_path / "x.json"), tmp_path / "x", f"groups={groups}"))
    assert "groups[0].initializer_range needs a matrix or an embedding in the group, got none" in message


def test_a_comparison_gives_each_encoding_the_groups_that_it_has(prepared, tmp_path):
    """Without a run file, values replace those of the default one."""
    small = ["model.hidden_size=16", "model.num_hidden_layers=1", "model.intermediate_size=24", "stages.0.steps=2"]
    small += ["stages.0.max_length=16", "stages.0.batch=4", "model.max_position_embeddings=16"]
    given = ["compare", "--data", prepared / "data", "--lengths", 1, 2, "--seeds", 1]
    groups = [dict(parameters="*.key.*", learning_rate=0.5), GROUP]
    value = f"groups={json.dumps(groups)}"
    results(*given, *small, value, "--encodings", "none,t5", "--output", tmp_path / "out")
    files = (tmp_path / "out" / name / "seed-1" / "run.json" for name in ("none", "t5"))
    assert [json.loads(file.read_text())["groups"] for file in files] == [groups[:1], groups]
    other = ["--encodings", "none,rope", "--output", tmp_path / "other"]
    message = refused(*given, "model.position_encoding=t5", *other)
    assert message.startswith("[compare] model.position_encoding must be absent") and ' got "t5"' in message
    message = refused(*given, *small, value, *other)
    assert "groups[1].parameters must match a parameter of a compared model" in message
    assert GROUP["parameters"] in message
