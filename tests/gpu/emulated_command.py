"""Commands of the program on an emulated GPU, for fork_server.Forked: ``python emulated_command.py LIBRARY``."""

import ctypes
import sys

ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)  # before torch, which asks once whether there is CUDA
import torch  # noqa: E402

torch.cuda._lazy_init = lambda: None

from roformer_cpp.gpu import library  # noqa: E402

library.MODULES.clear()  # the kernels of the CPU
library.missing = lambda device: None

import fork_server  # noqa: E402
from roformer_cpp import _torch, distributed  # noqa: E402, F401 - the operators, as where PyTorch sees a GPU

fork_server.serve(distributed.main)
