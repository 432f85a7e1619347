"""Comparisons of language models (`roformer compare`), whose runs the first experiment that needs them trains.

A design is a dict, part of an experiment's settings: `runs`, the folder <scale>/runs/<runs>; `corpus` (corpus.py);
`seeds`, without a gap; `arms`, the encodings by the arms' names, as `roformer compare` takes them; `run`, the run file
of all arms (docs/pretraining.md); `lengths`, the multiples of the training length at which the held-out loss is
measured; and `search` (rate_search.py), None: the run file's rate is taken. Runs of a rate are in <runs>/<rate>, short
ones in <runs>-rates/<rate>.
"""

import json
import math
import re
import statistics
from dataclasses import dataclass
from pathlib import Path

from . import corpus
from .rate_search import rows_of_search, search_rate
from .run import row, write_json

HELD_OUT, LATE = "held-out loss, nats per token", "late training loss, nats per token"
CURVE, PARAMETERS, PEAK = "training loss, nats per token", "parameters", "peak memory of training, MiB"
STEPS_OF = "steps to the loss that both reach, of those of {}"
SINUSOIDS = "sinusoidal:scale_embedding=true"  # Vaswani's, added to scaled words as he adds them
MAX_POINTS = 200  # of a training curve


def design(runs, of_corpus, seeds, arms, run, lengths=(1,), search=None):
    arms = arms if isinstance(arms, dict) else {arm: arm for arm in arms}
    return {"runs": runs, "corpus": of_corpus, "seeds": seeds, "arms": arms, "run": run} | {
        "lengths": list(lengths),
        "search": search,
    }


def settings_of(*designs, **more):
    """Settings of an experiment with these designs."""
    files = dict.fromkeys(name for each in designs for name in corpus.files_of(each["corpus"]))
    return {
        "designs": {each["runs"]: each for each in designs},
        "seeds": designs[0]["seeds"],
        "files": list(files),
    } | more


def masked_run(scale, small_steps, batch=32):
    """The run file of a masked model; paper: BERT-base."""
    if scale == "paper":
        return {
            "model": {"model_type": "bert", "max_position_embeddings": 512},
            "stages": [{"max_length": 512, "batch": 64, "steps": 100000}],
            "schedule": {"kind": "constant", "learning_rate": 1e-5, "warmup_steps": 0},
            "log_every_steps": 100,
            "checkpoint_every_steps": 1000,
            "keep_checkpoints": 1,
            "evaluate_batches": 40,
        }
    tiny = scale == "tiny"
    return {
        "model": small_body(128, layers=4),
        "stages": [{"max_length": 128, "batch": batch, "steps": 60 if tiny else small_steps}],
        "schedule": {"kind": "linear", "learning_rate": 1e-3, "warmup_steps": 15 if tiny else 100},
        "evaluate_batches": 5 if tiny else 40,
        "checkpoint_every_steps": 200,
        "keep_checkpoints": 1,
    }


def small_body(length, layers, width=128):
    return {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "intermediate_size": 4 * width,
        "max_position_embeddings": length,
    }


def byte_run(scale, attention, tokens, batch, small_steps=2000):
    """The run file of a causal model of bytes; paper: of BERT-base's size, 100,000 steps of 128 rows of 1,024."""
    tiny, published = scale == "tiny", scale == "paper"
    if published:
        tokens, batch = 1024, 128
    body = small_body(tokens, layers=12 if published else 4, width=768 if published else 128)
    steps = 100000 if published else 8 if tiny else small_steps
    return {
        "objective": "causal",
        "model": body | {"num_attention_heads": 12 if published else 4, "attention": attention},
        "schedule": {
            "kind": "constant",
            "learning_rate": 1e-4 if published else 1e-3,
            "warmup_steps": 2 if tiny else 100,
        },
        "evaluate_batches": 2 if tiny else 40,
        "log_every_steps": 100 if published else 2 if tiny else 10,
        "stages": [{"max_length": tokens, "batch": batch, "steps": steps}],
    }


@dataclass(frozen=True)
class Run:
    """A run that is trained."""

    arm: str
    seed: int
    learning_rate: float
    directory: Path
    record: dict  # who trained it (Context.recorded)
    losses: list  # held out, at each of the design's lengths; None beyond a learned table, and of a run that diverged
    parameters: int
    peak_bytes: int
    diverged: bool
    reading: object = None  # the result of `train`'s read; None if the run diverged

    @property
    def loss(self):
        return math.inf if self.losses[0] is None else self.losses[0]

    @property
    def curve(self):
        """(steps, losses) of training."""
        steps, losses = [], []
        for line in metrics(self.directory, "train"):
            if line["step"] > (steps[-1] if steps else 0):
                steps.append(line["step"])
                losses.append(line["loss"])
        return steps, losses


def metrics(directory, kind):
    """The lines of a run's metrics of a type."""
    lines = map(json.loads, (directory / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line["type"] == kind]


def thinned(points):
    """At most MAX_POINTS points, spread evenly, with the last."""
    every = -(-len(points) // MAX_POINTS) or 1
    return points[::-1][::every][::-1]


def train(context, of_design, arms=None, read=None):
    """Trains what is not trained yet of the arms, with each arm's rate of the design's search.

    Args:
        arms: some of the design's; default: all.
        read: (name, settings, function of a Run and the data directory) of what is read of the weights of each run,
            as JSON; it is kept next to the run, so that the weights are not needed again.

    Returns:
        The Runs by arm and seed, and the rows of the rates that were tried.
    """
    data = corpus.prepared(context, of_design["corpus"])
    trained = context.share(
        of_design["runs"], list(arms or of_design["arms"]), lambda arm: _train_arm(context, of_design, data, arm, read)
    )
    return [run for runs, _ in trained.values() for run in runs], [
        each for _, rows in trained.values() for each in rows
    ]


def _train_arm(context, of_design, data, arm, read):
    def trained(seed, rate, is_short=False):
        return _train_run(context, of_design, data, arm, seed, rate, is_short)

    search, seeds, rate, rows = of_design["search"], of_design["seeds"], None, []
    if search is not None:
        rate, short, whole = search_rate(
            search,
            lambda rate: trained(search["seed"], rate, is_short=True).loss,
            lambda rate: trained(seeds[0], rate).loss,
        )
        rows = list(rows_of_search(arm, short, whole))
    runs = [trained(seed, rate) for seed in seeds]
    if read is not None:
        runs = [_with_reading(context, run, data, *read) for run in runs]
    return runs, rows


def _train_run(context, of_design, data, arm, seed, rate, is_short):
    runs, run, lengths = of_design["runs"], json.loads(json.dumps(of_design["run"])), of_design["lengths"]
    if rate is not None:
        run["schedule"]["learning_rate"] = rate
    if is_short:
        runs, lengths = f"{runs}-rates", [1]
        for stage in run["stages"]:
            stage["steps"] = of_design["search"]["steps"]
    output = context.path("runs", runs) if rate is None else context.path("runs", runs, f"{rate:g}")
    config, encoding = Path(f"{output}.run.json"), of_design["arms"][arm]
    directory = output / re.sub(r"[^A-Za-z0-9_.=-]", "+", encoding) / f"seed-{seed}"
    # Of other data, a run is not finished, and the program refuses to continue it.
    made_of = {"data": corpus.identity(data)}
    settings = made_of | {"encoding": encoding, "run": run, "seed": seed, "lengths": lengths}
    # Not in the output, which must be empty before the comparison.
    with context.recorded(Path(f"{output}.records") / directory.relative_to(output), settings) as record:
        if not record["finished"]:
            what = "a short run" if is_short else f"seed {seed}"
            context.note(f"{runs}, {arm}: {what} at the rate {run['schedule']['learning_rate']:g}")
            write_json(config, run)
            # A comparison keeps its first seed, with which it measures all runs, and the runs that are finished.
            first = seed if is_short else of_design["seeds"][0]
            options = {"seed": first, "seeds": seed - first + 1, "lengths": lengths}
            context.roformer("compare", encodings=encoding, config=config, data=data, output=output, **options)
    result = json.loads((directory / "result.json").read_text(encoding="utf-8"))
    costs = {key: result[key] for key in ("losses", "parameters", "peak_bytes")}
    return Run(
        arm, seed, run["schedule"]["learning_rate"], directory, record, **costs, diverged="diverged_at_step" in result
    )


@dataclass(frozen=True)
class Body:
    """A model of `roformer pretrain`."""

    directory: Path
    seed: int
    record: dict


def pretrained(context, folder, run, data, seed):
    """The Body of a run file, in <scale>/runs/<folder>/seed-<n>."""
    directory = context.path("runs", *folder, f"seed-{seed}")
    context.note(f"{', '.join(folder)}, seed {seed}")
    made_of = {"run": run, "seed": seed, "data": corpus.identity(data)}
    with context.recorded(directory, made_of) as record:
        if not record["finished"]:
            config = Path(f"{directory}.run.json")
            write_json(config, run)
            context.roformer("pretrain", config=config, data=data, output=directory, resume=True, seed=seed)
    return Body(directory, seed, record)


def _with_reading(context, run, data, name, settings, read):
    if run.diverged:
        return run
    reading = context.kept(f"{run.directory}.{name}.json", settings, lambda: read(run, data))
    return Run(**{**vars(run), "reading": reading})


def rows_of_runs(runs):
    """Held-out loss and late training loss, costs, and the curve of each run; losses are missing if a run diverged."""
    for run in runs:
        found = {PARAMETERS: run.parameters, PEAK: run.peak_bytes / 2**20}
        if not run.diverged:
            found |= {HELD_OUT: run.loss, LATE: late_mean(*run.curve)}
        about = {"seed": run.seed, "made": run.record}
        yield from (
            row(measure, run.arm, value, learning_rate=run.learning_rate, **about) for measure, value in found.items()
        )
        for step, loss in thinned(list(zip(*run.curve, strict=True))):
            yield row(CURVE, run.arm, loss, step=step, **about)


def rows_of_body(name, body):
    """Held-out loss and curve of a Body; the loss comes first."""
    about = {"seed": body.seed, "made": body.record}
    yield row(HELD_OUT, name, metrics(body.directory, "evaluation")[-1]["loss"], **about)
    curve = [(line["step"], line["loss"]) for line in metrics(body.directory, "train")]
    yield from (row(CURVE, name, value, step=step, **about) for step, value in thinned(curve))


def rows_of_steps(runs, arm, baseline, name):
    """The steps of an arm's runs to the training loss that both reach, by the baseline's steps with the same seed."""
    others = {run.seed: run for run in runs if run.arm == baseline}
    for run in runs:
        if run.arm == arm and run.seed in others and not run.diverged and not others[run.seed].diverged:
            ratio = steps_ratio(run.curve, others[run.seed].curve)
            yield row(STEPS_OF.format(name), arm, ratio, seed=run.seed, made=run.record)


def late_mean(steps, losses):
    """The mean training loss of the last two thirds of a run."""
    return statistics.fmean(loss for step, loss in zip(steps, losses, strict=True) if step > steps[-1] // 3)


def steps_ratio(curve, other):
    """The steps of a run to the training loss that both reach in the end, by the other's steps. Losses are means over
    a twentieth of the run, of five points at least, and a loss is reached where no later one is above it."""
    own, its = _smoothed(*curve), _smoothed(*other)
    goal = max(own[1][-1], its[1][-1])
    return _steps_to(own, goal) / _steps_to(its, goal)


def _smoothed(steps, losses):
    points = min(max(5, len(losses) // 20), len(losses))
    ends = range(points, len(losses) + 1)
    return [steps[end - 1] for end in ends], [statistics.fmean(losses[end - points : end]) for end in ends]


def _steps_to(curve, goal):
    above = [i for i, loss in enumerate(curve[1]) if loss > goal]
    return curve[0][above[-1] + 1 if above else 0]
