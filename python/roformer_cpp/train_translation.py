"""``python -m roformer_cpp.train_translation ..``: `roformer train-translation` inside Python, which has the kernels of
GPUs."""

from .distributed import main

if __name__ == "__main__":
    raise SystemExit(main("train-translation"))
