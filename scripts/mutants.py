#!/usr/bin/env python3
"""Measures what the tests detect: changes one line of C++, builds, and names the test that fails.

Needs scripts/setup.sh --tests before. A mutant swaps an operator, changes a constant or a condition, or leaves out a
statement. Mutants that do not compile are replaced by further ones. The C++ test programs that link the module run
first, then pytest, which begins with the files most similar to the changed file in the names they use, until a test
fails; a program that crashes or hangs fails too. Each result is immediately appended to a file of JSON lines, and a
second call with the same seed on the same commit continues. A mutant that survives is either not tested or equivalent
(it changes no result, for example the size of a buffer): read it. A mutant takes 1 to 5 minutes, a survivor as long as
the whole suite.
"""

import argparse
import functools
import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__" and sys.prefix == sys.base_prefix:  # not in an environment: use that of scripts/setup.sh
    python = os.environ.get("ROFORMER_PYTHON", str(ROOT / ".venv/bin/python"))
    os.execv(python, [python, *sys.argv])

from run_tests import PYTEST  # noqa: E402
from sklearn.feature_extraction.text import TfidfVectorizer  # noqa: E402

LIMIT = 5400  # seconds for a program or for pytest: a mutant that needs more hangs
MODULES = ("core", "engine", "nn", "text", "data", "train")
LAST_FOLDERS = ("bench", "build", "docs", "experiments", "gpu", "scripts")  # they test other things than modules
# Faults that once survived all tests.
CHOSEN = (
    ("nn/src/body.cpp", "if (!drops_first) embedded_BTE = drop(embedded_BTE, p);", ""),
    ("nn/src/layers.cpp", "drop.key->next_stream()", "0"),
    (
        "nn/src/layer_parameters.cpp",
        "normal_(mean, shape.initializer_range)",
        "normal_(mean, 0.6 * shape.initializer_range)",
    ),
    ("data/src/batcher.cpp", "packed[epoch ? shuffle(i) : i]", "packed[i]"),
    ("engine/src/translator.cpp", "std::floor(options.max_ratio", "std::ceil(options.max_ratio"),
)
SWAPS = [(" < ", " <= "), (" > ", " >= "), (" == ", " != "), (" && ", " || "), (" + ", " - "), (" * ", " / ")]
SWAPS += [(" += ", " -= "), ("std::min", "std::max"), ("std::floor", "std::ceil"), ("continue;", "break;")]
OPERATORS = [(re.compile(re.escape(a)), b) for pair in SWAPS for a, b in (pair, pair[::-1])]
OPERATORS += [(re.compile(pattern), text) for pattern, text in [
    (r"\btrue\b", "false"),
    (r"\bfalse\b", "true"),
    (r"(?<![\w.])0(?![\w.])", "1"),
    (r"(?<![\w.])1(?![\w.])", "2"),
    (r"(?<![\w.)])!(?=[\w(])", ""),
    (r"^(\s*)[a-z][\w.:>-]*\([^;{}]*\);$", r"\1;"),
]]  # fmt: skip
# Lines that state no result: declarations, checks at compile time, and what only makes the program faster.
NOT_RESULTS = re.compile(
    r"\s*(#|//|\*|using |template|namespace|static_assert|extern|friend|class |struct |enum )|reserve\(|prefetch"
    r"|_PRAGMA|omp_|kMin\w*Work|assert\("
)
GENERATED = re.compile(r"_tables?(\.cpp|\.h|-inl\.h)$|/ref/")


def code_of(line):
    """The line with spaces in place of its strings and its comment."""
    line = re.sub(r'"(\\.|[^"\\])*"|\'(\\.|[^\'\\])\'', lambda found: " " * len(found[0]), line)
    return re.sub(r"//.*", lambda found: " " * len(found[0]), line)


def mutants_of(text):
    """All mutants of a source as (number of the line, the changed line)."""
    for number, line in enumerate(text.splitlines()):
        if NOT_RESULTS.search(line):
            continue
        code = code_of(line)
        for pattern, replacement in OPERATORS:
            for found in pattern.finditer(code):
                yield number, line[: found.start()] + found.expand(replacement) + line[found.end() :]


def sources(module):
    paths = sorted(str(path.relative_to(ROOT)) for path in (ROOT / module).rglob("*") if path.suffix in (".cpp", ".h"))
    return [path for path in paths if not GENERATED.search(path)]


@functools.cache
def mutants(module):
    return [(path, *mutant) for path in sources(module) for mutant in mutants_of((ROOT / path).read_text())]


def draws(seed):
    """An endless series of (file, text, changed text), the modules in turn, the same for a seed and a commit."""
    generator = random.Random(seed)
    for module in itertools.cycle(MODULES):
        path, number, changed = generator.choice(mutants(module))
        lines = (ROOT / path).read_text().splitlines(keepends=True)
        yield path, "".join(lines), "".join([*lines[:number], changed + "\n", *lines[number + 1 :]])


def chosen():
    for path, before, after in CHOSEN:
        text = (ROOT / path).read_text()
        if text.count(before) != 1:
            sys.exit(f"mutants: {path} must contain the line of a chosen mutant once: {before}")
        yield path, text, text.replace(before, after)


def shown(mutant):
    path, text, changed = mutant
    pairs = zip(text.splitlines(), changed.splitlines(), strict=True)
    number, before, after = next((i, a, b) for i, (a, b) in enumerate(pairs, 1) if a != b)
    return {"file": path, "line": number, "before": before.strip(), "after": after.strip()}


def run(command, **options):
    """The output and the exit code, which is None for a program that reaches the limit."""
    pipe = subprocess.PIPE
    options |= dict(cwd=ROOT, text=True, errors="replace", stdout=pipe, stderr=subprocess.STDOUT)
    with subprocess.Popen(list(map(str, command)), start_new_session=True, **options) as process:
        try:
            return process.communicate(timeout=LIMIT)[0], process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return "", None


def end_of(code):
    return "did not end" if code is None else f"exit code {code}"


def programs(module):
    """The C++ test programs that link the module, its own first."""
    tests = ROOT / "build/release/tests"
    names = [name for file in ("programs.txt", "sanitized.txt") for name in (tests / file).read_text().split()]

    def links(name):
        return f"libroformer_{module}." in run(["ninja", "-C", "build/release", "-t", "inputs", f"tests/{name}"])[0]

    return [tests / name for name in sorted(names, key=lambda name: name != f"{module}_test") if links(name)]


def parts_of_names(path):
    """Lower-case parts of the names in a file and its path, which counts three times."""
    text = " ".join([path.read_text(), *3 * [str(path.relative_to(ROOT))]])
    return [part.lower() for part in re.findall(r"[A-Z]?[a-z]{3,}|[A-Z]{3,}", text)]


def nearest_first(source):
    """The test files of pytest, first those with the most similar names (tf-idf)."""
    paths = sorted((ROOT / "tests").glob("*/test_*.py"))
    vectorizer = TfidfVectorizer(analyzer=parts_of_names, sublinear_tf=True)
    near = (vectorizer.fit_transform(paths) @ vectorizer.transform([ROOT / source]).T).toarray().ravel()
    order = sorted(range(len(paths)), key=lambda i: (paths[i].parent.name in LAST_FOLDERS, -near[i]))
    return [paths[i].relative_to(ROOT) for i in order]


def killer(source):
    """The test that fails, or None."""
    for program in programs(source.split("/")[0]):
        output, code = run([program, "--gtest_brief=1", "--gtest_fail_fast"])
        if code != 0:
            failed = re.search(r"\[  FAILED  \] ([^\s,]+)", output)
            return f"{program.name}: {failed[1] if failed else end_of(code)}"
    output, code = run([*PYTEST, "-x", *nearest_first(source)], env=dict(os.environ, PYTHONPATH=str(ROOT / "python")))
    if code == 0:
        return None
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
    return failed[1] if failed else f"pytest: {end_of(code)}"


def built():
    return run(["cmake", "--build", "--preset", "release", "--target", "all", "rf_sanitized_tests"])[1] == 0


def try_out(mutant):
    """The facts of the mutant and the test that kills it; "compiles": false if it does not."""
    path, text, changed = mutant
    start = time.monotonic()
    try:
        (ROOT / path).write_text(changed)
        facts = {**shown(mutant), "compiles": built()}
        if facts["compiles"]:
            facts["killed_by"] = killer(path)
    finally:
        (ROOT / path).write_text(text)
    return {**facts, "seconds": round(time.monotonic() - start)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="of the drawn mutants (default 1)")
    parser.add_argument("--count", type=int, default=40, help="of drawn mutants (default 40)")
    parser.add_argument("--output", type=Path, default=ROOT / "build/mutants.jsonl", help="default build/mutants.jsonl")
    parser.add_argument("--list", action="store_true", help="show the mutants and build nothing")
    arguments = parser.parse_args()

    series = draws(arguments.seed)
    if arguments.list:
        for mutant in [*chosen(), *(next(series) for _ in range(arguments.count))]:
            print("{file}:{line}\n  - {before}\n  + {after}".format(**shown(mutant)))
        return 0
    status = subprocess.run(["git", "status", "--porcelain", "--untracked-files=no"], cwd=ROOT, text=True,
                            capture_output=True, check=True).stdout  # fmt: skip
    if status:
        sys.exit(f"mutants: the checkout must be without changes, got\n{status}")
    if not built():
        sys.exit("mutants: build/release must build; run scripts/setup.sh --tests")
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, text=True, capture_output=True, check=True).stdout
    head = {"commit": commit.strip(), "seed": arguments.seed}
    done = [json.loads(line) for line in arguments.output.read_text().splitlines()] if arguments.output.exists() else []
    done = [{key: each[key] for key in each if key not in head} for each in done if head.items() <= each.items()]

    def result(mutant):
        facts = next((each for each in done if shown(mutant).items() <= each.items()), None)
        if facts is None:
            facts = try_out(mutant)
            with arguments.output.open("a") as file:
                file.write(json.dumps({**head, **facts}) + "\n")
        end = (facts["killed_by"] or "SURVIVED") if facts["compiles"] else "does not compile"
        print("{file}:{line}\n  - {before}\n  + {after}\n  {seconds} s: ".format(**facts) + end, flush=True)
        return facts if facts["compiles"] else None

    results = [result(mutant) for mutant in chosen()]
    drawn = []
    while len(drawn) < arguments.count:
        drawn += filter(None, [result(next(series))])
    built()
    survived = sum(each["killed_by"] is None for each in [*filter(None, results), *drawn])
    print(f"{len(results) + len(drawn) - survived} killed, {survived} survived; results in {arguments.output}")
    return int(survived > 0)


if __name__ == "__main__":
    sys.exit(main())
