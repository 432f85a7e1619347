"""What the commands of the package (`python -m roformer_cpp.plot` and the like) end with."""

import sys
from collections.abc import Callable


def exit_code(work: Callable[[], object]) -> int:
    """0 when the work is done, 1 with its message on standard error when input or machine stand in its way."""
    try:
        work()
    except (ImportError, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0
