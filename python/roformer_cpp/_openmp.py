"""Sets how OpenMP's idle threads wait, for the whole process, before torch is loaded.

GNU OpenMP reads its settings once, when torch loads it. Unless the user has set OMP_WAIT_POLICY or GOMP_SPINCOUNT, or
torch is already loaded, its threads spin for a short time before they sleep, as in the program `roformer`
(cli/src/program.cpp gives the reasons and has the same count). The environment is restored.
"""

import os
import sys

SPIN_COUNT = "10000"
_SPIN = "GOMP_SPINCOUNT"


def load_torch() -> None:
    if "torch" in sys.modules or "OMP_WAIT_POLICY" in os.environ or _SPIN in os.environ:
        return
    os.environ[_SPIN] = SPIN_COUNT
    try:
        import torch  # noqa: F401
    finally:
        del os.environ[_SPIN]
