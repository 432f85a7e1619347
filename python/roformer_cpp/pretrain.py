"""``torchrun -m roformer_cpp.pretrain ..``: `roformer pretrain` by several processes (distributed.py)."""

from .distributed import main

if __name__ == "__main__":
    raise SystemExit(main("pretrain"))
