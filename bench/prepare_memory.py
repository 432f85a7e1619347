"""Measures the memory of `roformer prepare` on a large file, and the processor time with one and two threads.

    python bench/prepare_memory.py [--megabytes 1000] [--text FILE] [--model DIR_WITH_VOCAB] [--update-docs]

Writes JSON lines of FILE's text, repeatedly, to a temporary file, and prepares it. Prints a JSON line for each tenth of
the file that has been read (resident memory in MiB) and one for each run: `peak_mib`, the maximum, `seconds` by the
clock, `cpu_seconds`, and `busiest_cpu_seconds` of the busiest thread, which the clock would show on idle cores.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

import tables  # noqa: E402
from peer_timing import machine  # noqa: E402

TABLES = ["prepare_memory"]
PROGRAM = Path(os.environ.get("ROFORMER_BUILD_DIR", ROOT / "build" / "release")) / "roformer"


def write_lines(path, text, megabytes):
    lines = "".join(json.dumps({"text": line}) + "\n" for line in text.splitlines() if line.strip()).encode()
    with path.open("wb") as file:
        while file.tell() < megabytes * 1_000_000:
            file.write(lines)


def resident_mib(pid):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return None


def bytes_read(pid, path):
    """How far the descriptor of the file has come."""
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        if entry.resolve() == path:
            return int(Path(f"/proc/{pid}/fdinfo/{entry.name}").read_text().split()[1])
    return 0


def cpu_seconds(pid):
    """CPU seconds of all living threads."""
    ticks = os.sysconf("SC_CLK_TCK")
    fields = [
        task.joinpath("stat").read_text().rsplit(")", 1)[1].split() for task in Path(f"/proc/{pid}/task").iterdir()
    ]
    return [(int(field[11]) + int(field[12])) / ticks for field in fields]


def measure(path, model, output, threads):
    command = [PROGRAM, "prepare", "--input", path, "--model", model, "--output", output, "--threads", str(threads)]
    size, begin, steps, busy, peak = path.stat().st_size, time.monotonic(), 0, [0.0], 0.0
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    while child.poll() is None:
        try:
            part, memory, seconds = bytes_read(child.pid, path) / size, resident_mib(child.pid), cpu_seconds(child.pid)
        except OSError:
            continue  # it ended in between
        busy = seconds if seconds and sum(seconds) >= sum(busy) else busy
        peak = max(peak, memory or 0)
        if memory and part * 10 >= steps + 1:
            steps = int(part * 10)
            print(
                json.dumps({"threads": threads, "read": round(part, 2), "resident_mib": round(memory, 1)}), flush=True
            )
        time.sleep(0.02)
    report = json.loads(child.stdout.read())
    return {
        "threads": threads,
        "input_bytes": report["input_bytes"],
        "tokens": report["train_tokens"] + report["valid_tokens"],
        "peak_mib": round(peak, 1),
        "seconds": round(time.monotonic() - begin, 2),
        "cpu_seconds": round(sum(busy), 2),
        "busiest_cpu_seconds": round(max(busy), 2),
    }


def docs_table(runs):
    lines = [["threads", "GB of jsonl", "resident MiB, at most", "seconds", "processor seconds"]]
    for run in runs:
        numbers = [run["threads"], f"{run['input_bytes'] / 1e9:.2f}", run["peak_mib"], run["seconds"]]
        lines.append([*map(str, numbers), str(run["cpu_seconds"])])
    return tables.markdown(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--text", type=Path, default=ROOT / "LICENSE")
    parser.add_argument("--model", type=Path, help="default: a vocabulary trained on the text")
    tables.add_option(parser)
    arguments = parser.parse_args()
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder).resolve()
        path, model = folder / "a.jsonl", arguments.model
        write_lines(path, arguments.text.read_text(encoding="utf-8"), arguments.megabytes)
        if model is None:
            model = folder / "model"
            vocab = [PROGRAM, "vocab", "--input", arguments.text, "--format", "text", "--output", model / "vocab.txt"]
            subprocess.run(vocab, check=True, stdout=subprocess.DEVNULL)
        for threads in (1, 2):
            runs.append(measure(path, model, folder / "data", threads))
            print(json.dumps(runs[-1]), flush=True)
    if arguments.update_docs:
        tables.update_docs(TABLES[0], machine(), docs_table(runs))


if __name__ == "__main__":
    main()
