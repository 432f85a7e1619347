"""``torchrun -m roformer_cpp.evaluate ..``: `roformer evaluate` by several processes (distributed.py)."""

from .distributed import main

if __name__ == "__main__":
    raise SystemExit(main("evaluate"))
