"""``torchrun -m roformer_cpp.finetune ..``: `roformer finetune`, whose runs the processes share (distributed.py)."""

from .distributed import main

if __name__ == "__main__":
    raise SystemExit(main("finetune"))
