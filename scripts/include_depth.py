"""Prints for each module the longest chain of headers of this repository that one of its sources or headers includes.

The depth is the number of headers in the chain; the file that it begins with is not counted.
"""

import functools
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
PUBLIC = sorted(ROOT.glob("*/include"))


@functools.cache
def headers_of(path):
    """The headers of this repository that a file includes, found as the compiler finds them."""
    module = ROOT / path.relative_to(ROOT).parts[0]
    folders = [path.parent, module / "src", module, *PUBLIC]
    found = [next((folder / name for folder in folders if (folder / name).is_file()), None) for name in included(path)]
    return [header.resolve() for header in found if header is not None]


def included(path):
    return INCLUDE.findall(path.read_text(encoding="utf-8"))


@functools.cache
def longest_chain(path):
    """A file and the longest chain of headers below it."""
    return [path, *max((longest_chain(header) for header in headers_of(path)), key=len, default=[])]


def chain_of_module(module):
    files = [path for kind in ("*.cpp", "*.h") for path in sorted((ROOT / module).rglob(kind))]
    return max(map(longest_chain, files), key=len)


def modules():
    return sorted(page.parent.name for page in ROOT.glob("*/CMakeLists.txt") if "rf_module(" in page.read_text())


def main():
    for module in modules():
        chain = chain_of_module(module)
        print(f"{module}: {len(chain) - 1}  " + " > ".join(str(path.relative_to(ROOT)) for path in chain))


if __name__ == "__main__":
    main()
