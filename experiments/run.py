"""Runs experiments: from their names to rows in Parquet files, and to verdicts by the rules of claims.yaml.

    python -m experiments --list
    python -m experiments all --scale tiny --output results --data data
    python -m experiments convergence table5 --scale small --output results --data data

An experiment is named by its name or by the beginning of its module's: `convergence`, `figure3` (both parts of Figure
3), `table5`. Each is a module of this package in MODULES that has

    EXPERIMENTS = [Experiment("long-texts", "Does RoFormer gain by ..?", run, settings, hours=3.2)]

    def settings(scale):       # all that determines the numbers, as JSON; "seeds" and "files" have a meaning for all
        return {"seeds": seeds_of(scale), "files": ["zh_cls/chnsenticorp_train.tsv"], ..}

    def run(context, settings):  # yields the rows; calls the program and the package
        body = context.path("runs", "bodies", "rope")
        with context.recorded(body, settings["run"]) as record:  # who trained it, and how long that took
            context.roformer("pretrain", config=.., data=.., output=body, resume=True, seed=1)
        yield row("triples, accuracy", "RoFormer at 128", 0.71, seed=1, made=record)

`row` says what a row has. A rule of claims.yaml names the measure and the arms that it compares; its kind says what a
verdict rests on. Rows of a rate that was tried have the measures judge.SHORT_RUN and judge.WHOLE_RUN.

Continuing. A finished experiment is kept while its settings are the same; within one, `context.roformer` continues
interrupted training, `context.recorded` tells which runs are finished, and `context.kept` keeps any other result as
JSON. SIGINT and SIGTERM reach the program, which writes a checkpoint.

Several processes may share an output: `context.share` gives each part of the work to the first process that asks, and
returns when all parts are done. An experiment with `shares_arms` calls it itself; any other is one part.

Files: <output>/<scale>/<experiment>.parquet with the rows, and in its metadata under "experiment" the settings, the
command and the seconds; <output>/<scale>/runs, corpus and locks. Experiments without a scale are in <output>/any.
"""

import fcntl
import hashlib
import json
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import import_module
from pathlib import Path

import pyarrow
from pyarrow import parquet

from . import judge

ROOT = Path(__file__).resolve().parents[1]
SCALES = ("tiny", "small", "paper")
NO_SCALE = "any"  # of mathematics and counting
MODULES = (  # in the order in which they run: what trains models before what reads them
    "permutation",
    "rotation",
    "any_position",
    "sinusoid",
    "linear_attention",
    "pairwise",
    "figure2_decay",
    "random_features",
    "cost",
    "chinese_tokens",
    "figure3_convergence",
    "trained_scores",
    "trained_frequencies",
    "encodings",
    "figure3_performer",
    "extrapolation",
    "synthetic",
    "atlas",
    "table4_staged",
    "table3_chinese_models",
    "table5_long_texts",
    "table2_glue",
    "rest_of_glue",
    "real_weights",
    "similar_texts",
    "table1_translation",
)

SCHEMA = pyarrow.schema(
    [(name, pyarrow.string()) for name in ("measure", "arm", "task")]
    + [("seed", pyarrow.int64())]
    + [(name, pyarrow.float64()) for name in ("learning_rate", "step", "value", "seconds")]
    + [(name, pyarrow.string()) for name in ("commit", "cpu", "command")]
)
_KEY = b"experiment"  # of the metadata of a Parquet file
_RECORD = ".training.json"  # after the name of the run's folder
_WAIT_S = 1


def row(measure, arm, value, *, seed=None, step=None, task=None, learning_rate=None, made=None):
    """A measured value.

    Args:
        measure: the measured quantity with its unit, as named by the rules of claims.yaml.
        arm: a side of the comparison: an encoding, a model.
        value: a number; not finite or None if the run found none, for example because it diverged.
        seed: of the run; values are paired by it. None: the value is exact, since nothing is drawn, or since it is the
            worst of all draws.
        step: the optimizer step, distance, length or other x coordinate of a curve. Rules read rows without one.
        task: the task or the part of the result that it belongs to.
        learning_rate: of a rate that was tried.
        made: the record of the run that was measured; default: the process that runs the experiment.
    """
    made = made or {}
    provenance = {key: made.get(key) for key in ("seconds", "commit", "cpu", "command")}
    value = None if value is None else float(value)
    keys = {"measure": measure, "arm": arm, "task": task, "seed": seed, "learning_rate": learning_rate, "step": step}
    return keys | {"value": value} | provenance


def seeds_of(scale):
    return [1] if scale == "tiny" else [1, 2, 3]


@dataclass(frozen=True)
class Experiment:
    """A question, and how it is answered.

    Args:
        name: as rules name it.
        question: one line.
        run: of a Context and the settings, the rows.
        settings: of the scale (of none without a scale), all that determines the numbers, as JSON.
        has_scale: False: mathematics or counting, the same at every scale.
        shares_arms: `run` itself divides its work among processes.
        hours: of scale small on 2 cores; 0: minutes.
        exceptions: differences from the publication at scale paper.
    """

    name: str
    question: str
    run: Callable[["Context", dict], Iterable[dict]]
    settings: Callable[..., dict]
    has_scale: bool = True
    shares_arms: bool = False
    hours: float = 0
    exceptions: tuple[str, ...] = ()

    def settings_at(self, scale):
        return json.loads(json.dumps(self.settings(scale) if self.has_scale else self.settings()))

    def folder(self, scale):
        return scale if self.has_scale else NO_SCALE

    @property
    def claims(self):
        return [rule.claim for rule in judge.rules_of(self.name)]


class Interrupted(Exception):
    """A signal ended the work early; `code` is the exit code."""

    def __init__(self, code):
        super().__init__("interrupted; the same command continues from here")
        self.code = code


class Context:
    """What an experiment works with: folders, the program, and what is shared with other processes."""

    def __init__(self, folder, data, scale, threads=None):
        self.folder, self.data, self.scale, self.threads = Path(folder), data and Path(data), scale, threads

    def path(self, *parts):
        return self.folder.joinpath(*parts)

    def note(self, text):
        print(text, file=sys.stderr, flush=True)

    def roformer(self, command, *arguments, **options):
        """The JSON lines of a command of the program. Options are keywords: None and False are left out, True is a
        flag, a list is several values.

        Raises:
            Interrupted: a signal ended it.
            RuntimeError: it failed; its message is on standard error.
        """
        words = [command, *map(str, arguments)]
        for name, value in (options | {"threads": self.threads}).items():
            if value is None or value is False:
                continue
            values = [] if value is True else value if isinstance(value, (list, tuple)) else [value]
            words += ["--" + name.replace("_", "-"), *map(str, values)]
        # Its own session: Ctrl-C reaches this process alone, which passes it on once.
        options = {"stdout": subprocess.PIPE, "text": True, "start_new_session": True}
        child = subprocess.Popen(
            [_program(), *words], env={**os.environ, "ROFORMER_PARENT": str(os.getpid())}, **options
        )
        try:
            output, _ = child.communicate()
        except BaseException:
            child.send_signal(signal.SIGINT)
            child.wait()
            raise
        if child.returncode in (128 + signal.SIGINT, 128 + signal.SIGTERM):
            raise Interrupted(child.returncode)
        if child.returncode != 0:
            raise RuntimeError(f"[run] roformer {shlex.join(words)} must end with code 0, got {child.returncode}")
        return [json.loads(line) for line in output.splitlines() if line.startswith("{")]

    def kept(self, path, settings, make):
        """The JSON value of the file, if it was made with these settings; else that of `make()`, which it then has."""
        before = _read_json(path)
        if before is not None and before["settings"] == json.loads(json.dumps(settings)):
            return before["value"]
        value = json.loads(json.dumps(make()))
        write_json(path, {"settings": settings, "value": value})
        return value

    @contextmanager
    def recorded(self, directory, settings):
        """Records the work that is done within as part of a run, in `<directory>.training.json`.

        The record is a dict: `settings`, `finished`, `parts` (command, commit, cpu, seconds of each process), and of
        all parts `seconds`, `commit`, `cpu` and `command`. A run that is finished is not changed: ask `is_finished`.
        """
        path = Path(f"{directory}{_RECORD}")
        before = self.record(directory)
        if self.is_finished(directory, settings):
            yield before
            return
        record = {"settings": settings, "finished": False, "parts": before["parts"] if before else []}
        record["parts"].append(made_here() | {"seconds": 0.0})
        write_json(path, record)
        start = time.monotonic()
        is_finished = False
        try:
            yield record
            is_finished = True
        finally:
            record["parts"][-1]["seconds"] = time.monotonic() - start
            record["finished"] = is_finished
            record["seconds"] = sum(part["seconds"] for part in record["parts"])
            record |= {
                key: " | ".join(dict.fromkeys(part[key] for part in record["parts"]))
                for key in ("commit", "cpu", "command")
            }
            write_json(path, record)

    def record(self, directory):
        """The record of a run; None if it is missing."""
        return _read_json(Path(f"{directory}{_RECORD}"))

    def is_finished(self, directory, settings):
        record = self.record(directory)
        settings = json.loads(json.dumps(settings))
        return record is not None and record["finished"] and record["settings"] == settings

    def share(self, name, parts, work):
        """Calls `work(part)` for each part that no other process is working on, and returns when all parts are done;
        the results by part. `work` must return what is there when the part was done by another process."""
        folder = self.path("locks", name)
        folder.mkdir(parents=True, exist_ok=True)
        done, waits = {}, False
        while len(done) < len(parts):
            before = len(done)
            for part in parts:
                if part in done:
                    continue
                with _try_lock(folder / f"{part.replace('/', '-')}.lock") as is_held:
                    if is_held:
                        done[part] = work(part)
            if len(done) == before:
                if not waits:
                    self.note(f"waiting for another process, which has {next(p for p in parts if p not in done)}")
                waits = True
                time.sleep(_WAIT_S)
        return done


@contextmanager
def _try_lock(path):
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def _read_json(path):
    path = Path(path)
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def write_json(path, value):
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    _replace(path, lambda new: new.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8"))


def _replace(path, write):
    """Writes a file in one step."""
    new = path.with_name(f"{path.name}.{os.getpid()}")
    write(new)
    new.replace(path)


@cache
def _program():
    """The program: of ROFORMER_BUILD_DIR, of this clone's build, or the installed one."""
    build = Path(os.environ.get("ROFORMER_BUILD_DIR", ROOT / "build" / "release")) / "roformer"
    found = str(build) if build.exists() else shutil.which("roformer")
    if found is None:
        raise FileNotFoundError(
            f"[run] the program roformer must be built or installed, got neither {build} nor one in PATH"
        )
    return found


@cache
def encodings():
    """The names of the program's position encodings."""
    return Context(ROOT, None, "any").roformer("info")[0]["encodings"]


@cache
def made_here():
    """The provenance of what this process makes: commit (ending in -dirty with uncommitted changes), cpu, cores, and
    the command with the names of its folders, without where they are on this machine."""
    describe = ["git", "describe", "--always", "--dirty", "--exclude=*", "--abbrev=12"]
    found = subprocess.run(describe, cwd=ROOT, capture_output=True, text=True) if shutil.which("git") else None
    names = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    cpu = next((line.split(":", 1)[1].strip() for line in names if line.startswith("model name")), platform.machine())
    return {
        "commit": found.stdout.strip() if found and found.returncode == 0 else "unknown",
        "cpu": cpu,
        "cores": os.cpu_count(),
        "command": shlex.join(["python", "-m", "experiments", *map(_without_place, sys.argv[1:])]),
    }


def _without_place(word):
    option, equals, place = word.rpartition("=")
    return option + equals + (Path(place).name if Path(place).is_absolute() else place)


def identity_of(data, files):
    """A hash of the content of files of --data."""
    found = hashlib.sha256()
    for name in files:
        with (Path(data) / name).open("rb") as file:
            found.update(f"{name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return found.hexdigest()


@cache
def experiments():
    """All experiments by name, in the order in which they run, and the modules that they are in."""
    found = {}
    for module in MODULES:
        for experiment in import_module(f".{module}", __package__).EXPERIMENTS:
            found[experiment.name] = experiment, module
    return found


def chosen(names):
    """The experiments of names in the order in which they run. Raises ValueError for one that nothing has."""
    known = experiments()

    def is_called(name, experiment, module):
        prefix = name.replace("-", "_")
        return name in ("all", experiment) or module == prefix or module.startswith(prefix + "_")

    for name in names:
        if not any(is_called(name, experiment, module) for experiment, (_, module) in known.items()):
            raise ValueError(f"[run] an experiment must be all or one that --list names, got {name!a:.60}")
    return [each for key, (each, module) in known.items() if any(is_called(name, key, module) for name in names)]


def missing_files(experiment, scale, data):
    """The files of --data that an experiment needs and that are not there."""
    files = experiment.settings_at(scale).get("files", [])
    return [name for name in files if data is None or not (Path(data) / name).exists()]


def read(path):
    """(rows, about) of an experiment's Parquet file, where `about` is a dict: name, scale, settings, seconds, date
    (UTC), commit, cpu, cores, command. (None, None) without such a file."""
    if not Path(path).exists():
        return None, None
    table = parquet.read_table(path)
    return table.to_pylist(), json.loads(table.schema.metadata[_KEY])


def read_about(path):
    """The `about` of `read` alone."""
    return json.loads(parquet.read_schema(path).metadata[_KEY]) if Path(path).exists() else None


def verdicts(experiment, rows, about):
    """{claim: what judge.judge says}, as a smoke run at scale tiny."""
    found = {}
    for rule in judge.rules_of(experiment):
        judged = judge.judge(rule, [each for each in rows if each["step"] is None], about["settings"].get("seeds", []))
        found[rule.claim] = judged | ({"verdict": "smoke run"} if about["scale"] == "tiny" else {})
    return found


def run(experiment, scale, output, data=None, threads=None):
    """Runs an experiment unless its result is there. Returns its line of output: a dict."""
    settings, folder = experiment.settings_at(scale), Path(output) / experiment.folder(scale)
    path = folder / f"{experiment.name}.parquet"
    context = Context(folder, data, scale, threads)

    def line(is_kept):
        rows, about = read(path)
        if rows is None or about["settings"] != settings:
            return None
        judged = verdicts(experiment.name, rows, about)
        said = {claim: each["verdict"] for claim, each in judged.items()}
        reasons = {claim: each["reason"] for claim, each in judged.items() if each["reason"]}
        found = {"name": experiment.name, "scale": about["scale"], "verdicts": said, "reasons": reasons}
        return found | {"seconds": about["seconds"], "kept": is_kept}

    def work(_):
        if (kept := line(is_kept=True)) is not None:  # made by another process
            return kept
        start = time.monotonic()
        rows = list(experiment.run(context, settings))
        if (kept := line(is_kept=True)) is not None:
            return kept
        about = {"name": experiment.name, "scale": experiment.folder(scale), "settings": settings} | made_here()
        about |= {"seconds": time.monotonic() - start, "date": datetime.now(UTC).isoformat(timespec="seconds")}
        _save(path, rows, about)
        return line(is_kept=False)

    if (kept := line(is_kept=True)) is not None:
        return kept
    context.note(f"{experiment.name}: {experiment.question}")
    if scale == "paper":
        for exception in experiment.exceptions:
            context.note(f"not as published: {exception}")
    if experiment.shares_arms:
        return work(experiment.name)
    return context.share("experiments", [experiment.name], work)[experiment.name]


def _save(path, rows, about):
    here = {key: about[key] for key in ("commit", "cpu", "command", "seconds")}
    rows = [each if each["commit"] else each | here for each in rows]
    table = pyarrow.Table.from_pylist(rows, SCHEMA.with_metadata({_KEY: json.dumps(about).encode()}))
    path.parent.mkdir(parents=True, exist_ok=True)
    _replace(path, lambda new: parquet.write_table(table, new, compression="zstd"))


def add_arguments(parser):
    """The arguments of the command."""
    parser.add_argument("names", nargs="*", help="experiments (--list names them), or all")
    parser.add_argument("--list", action="store_true", help="list the experiments without running them")
    scales = "tiny: everything once, in minutes; small: three seeds, in hours; paper: published hyperparameters"
    parser.add_argument("--scale", choices=SCALES, default="tiny", help=scales)
    parser.add_argument("--output", type=Path, help="folder of the results; the same command continues there")
    parser.add_argument("--data", type=Path, help="folder of the data sets (docs/reproduce.md)")
    parser.add_argument("--threads", type=int, help="threads to use; default: all")


def command(arguments):
    """The command: a JSON line for each experiment. Raises ValueError and OSError; SystemExit with a code."""
    if arguments.list:
        for name, (experiment, module) in experiments().items():
            about = {"name": name, "module": module, "question": experiment.question, "claims": experiment.claims}
            needs = experiment.settings_at(arguments.scale).get("files", [])
            print(json.dumps(about | {"hours": experiment.hours, "data": needs}))
        return
    if not arguments.names or arguments.output is None:
        raise ValueError("[run] an experiment and --output must be given, got neither or one (--list names them)")
    if arguments.threads is not None:
        if arguments.threads < 1:
            raise ValueError(f"[run] --threads must be at least 1, got {arguments.threads}")
        os.environ["OMP_NUM_THREADS"] = str(arguments.threads)  # of torch, which is not loaded yet
    selected = chosen(arguments.names)
    missing = {each.name: missing_files(each, arguments.scale, arguments.data) for each in selected}
    if "all" not in arguments.names and any(missing.values()):
        name = next(name for name in missing if missing[name])
        raise FileNotFoundError(f"[run] {name} must find its data in the folder of --data, got none of {missing[name]}")

    def stop(*_):
        raise Interrupted(128 + signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        for each in selected:
            found = {"name": each.name, "scale": each.folder(arguments.scale), "missing_data": missing[each.name]}
            if not missing[each.name]:
                found = run(each, arguments.scale, arguments.output, arguments.data, arguments.threads)
            print(json.dumps(found), flush=True)
    except (Interrupted, KeyboardInterrupt) as error:
        stopped = error if isinstance(error, Interrupted) else Interrupted(128 + signal.SIGINT)
        print(stopped, file=sys.stderr)
        raise SystemExit(stopped.code) from None
    finally:
        signal.signal(signal.SIGTERM, before)
