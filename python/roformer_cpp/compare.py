"""``python -m roformer_cpp.compare --import MODULE ..``: `roformer compare` with encodings written in Python."""

from .distributed import main

if __name__ == "__main__":
    raise SystemExit(main("compare"))
