"""python -m experiments: runs the papers' experiments, and writes the report from recorded results.

    python -m experiments --list
    python -m experiments table5 --scale small --output results --data data

`report` and `record-runs` in place of names are commands of their own; run.py has the rest.
"""

import argparse
import sys
from pathlib import Path

from . import record_runs, report, run
from .recorded import RESULTS

ROOT = Path(__file__).resolve().parents[1]


def main(arguments=None):
    arguments = sys.argv[1:] if arguments is None else arguments
    commands = {"report": _report, "record-runs": _record_runs}
    work = commands.get(arguments[0]) if arguments else None
    try:
        if work is not None:
            work(arguments[1:])
        else:
            parser = argparse.ArgumentParser(
                prog="python -m experiments", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
            )
            run.add_arguments(parser)
            run.command(parser.parse_args(arguments))
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        sys.exit(str(error))


def _report(arguments):
    parser = argparse.ArgumentParser(
        prog="python -m experiments report", description="write report.md, its pictures and atlas.csv"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="an output folder of `roformer reproduce`")
    parser.add_argument("--output", type=Path, default=ROOT / "docs", help="folder of the report")
    arguments = parser.parse_args(arguments)
    report.write(arguments.results, arguments.output)


def _record_runs(arguments):
    parser = argparse.ArgumentParser(
        prog="python -m experiments record-runs",
        description="write the runs of experiments as one Parquet file for each",
    )
    parser.add_argument("runs", type=Path, help="<output>/<scale>/runs of `roformer reproduce`")
    parser.add_argument("output", type=Path, help="folder for the Parquet files")
    arguments = parser.parse_args(arguments)
    record_runs.write(arguments.runs, arguments.output)


if __name__ == "__main__":
    main()
