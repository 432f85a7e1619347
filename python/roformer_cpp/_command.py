"""The exit code of the package's commands (`python -m roformer_cpp.plot` and the others)."""

import sys
from collections.abc import Callable


def exit_code(work: Callable[[], object]) -> int:
    """0 on success; 1, with the message on standard error, for an error of the input or the machine."""
    try:
        work()
    except (ImportError, OSError, RuntimeError, TypeError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0
