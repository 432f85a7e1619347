"""python -m experiments: writes the report from recorded results, and records the runs of an experiment."""

import argparse
import sys
from pathlib import Path

from . import record_runs, report
from .recorded import RESULTS

ROOT = Path(__file__).resolve().parents[1]


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    writes = commands.add_parser("report", help="write report.md, its pictures and atlas.csv")
    writes.add_argument("--results", type=Path, default=RESULTS, help="an output folder of `roformer reproduce`")
    writes.add_argument("--output", type=Path, default=ROOT / "docs", help="folder of the report")
    records = commands.add_parser("record-runs", help="write the runs of experiments as one Parquet file for each")
    records.add_argument("runs", type=Path, help="<output>/<scale>/runs of `roformer reproduce`")
    records.add_argument("output", type=Path, help="folder for the Parquet files")
    arguments = parser.parse_args(arguments)
    try:
        if arguments.command == "report":
            report.write(arguments.results, arguments.output)
        else:
            record_runs.write(arguments.runs, arguments.output)
    except (OSError, ValueError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
