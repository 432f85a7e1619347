"""How OpenMP's idle threads wait: a choice that holds for the whole process, made when torch is loaded.

GNU OpenMP reads its settings once, when torch loads it. Unless the user has set OMP_WAIT_POLICY or GOMP_SPINCOUNT, and
unless torch is there already, its threads are told to spin for a short while before they sleep, as those of the program
`roformer` are (cli/src/program.cpp gives the reasons and has the same count). The environment is left as it was.
"""

import os
import sys

SPIN_COUNT = "3000"
_SPIN = "GOMP_SPINCOUNT"


def load_torch() -> None:
    if "torch" in sys.modules or "OMP_WAIT_POLICY" in os.environ or _SPIN in os.environ:
        return
    os.environ[_SPIN] = SPIN_COUNT
    try:
        import torch  # noqa: F401
    finally:
        del os.environ[_SPIN]
