"""The command `python -m roformer_cpp.report`."""

import argparse
import sys
from pathlib import Path

from .._command import exit_code
from . import __doc__ as description
from . import write


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m roformer_cpp.report", description=description, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("directory", type=Path, help="the --output directory of `roformer reproduce`")
    parser.add_argument(
        "--output", type=Path, required=True, help="folder for report.html, report.md, atlas.html and pictures/"
    )
    arguments = parser.parse_args(arguments)
    return exit_code(lambda: write(arguments.directory, arguments.output))


if __name__ == "__main__":
    sys.exit(main())
