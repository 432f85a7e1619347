"""python -m experiments: runs the papers' experiments, and writes the report of their results.

    python -m experiments --list
    python -m experiments table5 --scale small --output results --data data
    python -m experiments report --results results

Without --results, the report is that of the results recorded in this repository.
"""

import argparse
import sys
from pathlib import Path

from . import report, run
from .recorded import RESULTS


def main(arguments=None):
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        if arguments[:1] == ["report"]:
            _report(arguments[1:])
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
    results = "folders of results (--output of a run); the larger scale of an experiment decides, then the newer run"
    parser.add_argument("--results", type=Path, nargs="+", default=[RESULTS], help=results)
    output = "folder of the report; default: the last folder of --results, or docs for the recorded results"
    parser.add_argument("--output", type=Path, help=output)
    arguments = parser.parse_args(arguments)
    report.write(arguments.results, arguments.output)


if __name__ == "__main__":
    main()
