"""The build backend of pyproject.toml: reports that pip cannot install this project, and what to do instead.

A wheel has to bring the C++ libraries, which are built by scripts/setup.sh for the torch that is installed. A package
without them would install and then fail to import.
"""

SENTENCE = (
    "[roformer_cpp] the package must be built by scripts/setup.sh, got pip, which cannot build its C++ libraries. "
    "Hint: run scripts/setup.sh; after it .venv/bin/python can import roformer_cpp, and so can another Python that has "
    "the same torch, with the folder python/ of this checkout in PYTHONPATH"
)


def build_wheel(*_, **__):
    raise SystemExit(SENTENCE)


build_sdist = build_editable = build_wheel
