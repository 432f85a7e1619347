"""Measures the source tree: the cost of a change, and growth. Prints one block per measure; scripts/include_depth.py
prints the chains of headers.

scripts/measure_tree.py [--term content_bias] [--build build/release] [--tree .]
"""

import argparse
import re
import subprocess
from collections import Counter
from pathlib import Path

MODULES = ("core", "io", "model", "text", "data", "ops", "nn", "train", "bench", "cli", "python", "tests")
SOURCES = (".cpp", ".h")
PARAMETERS = re.compile(r"([\w:~]+)\(((?:[^(){};]|\([^()]*\))*)\)\s*(?:const\s*)?(?:noexcept\s*)?(?:override\s*)?[{;]")


def tracked(tree: Path) -> list[Path]:
    names = subprocess.run(["git", "-C", tree, "ls-files", "-z"], capture_output=True, text=True, check=True).stdout
    return [tree / name for name in names.split("\0") if name]


def module_of(path: Path, tree: Path) -> str:
    return path.relative_to(tree).parts[0]


def without_comments(text: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"", "", text, flags=re.DOTALL)


def count_parameters(parameters: str) -> int:
    depth, count = 0, 1
    for character in parameters:
        depth += (character in "<({[") - (character in ">)}]")
        count += character == "," and depth == 0
    return count


def is_declaration(parameters: str) -> bool:
    """Every parameter has a type and a name, which arguments of a call do not."""
    return bool(re.search(r"(?:^|,)\s*(?:const\s+)?[\w:]+(?:<[^()]*>)?[&*\s]+\w+\s*(?:,|=|$)", parameters))


def longest_signatures(sources: dict[Path, str], tree: Path, count: int) -> list[tuple[int, str]]:
    found = {}
    for path, text in sources.items():
        if module_of(path, tree) == "tests":
            continue
        for name, parameters in PARAMETERS.findall(without_comments(text)):
            if is_declaration(parameters) and not re.search(r"\b(return|TORCH_CHECK)", parameters):
                key = f"{path.relative_to(tree)}: {name}"
                found[key] = max(found.get(key, 0), count_parameters(parameters))
    return sorted(((number, key) for key, number in found.items()), reverse=True)[:count]


def build_seconds(log: Path) -> Counter:
    """Seconds of compiling and linking, by module, summed over the last time that each output was built."""
    seconds, last = Counter(), {}
    for line in log.read_text().splitlines()[1:]:
        start, end, _, output, _ = line.split("\t")
        last[output] = (int(end) - int(start)) / 1000
    for output, time in last.items():
        if output.endswith((".o", ".gch", ".so", ".a")):
            seconds[output.split("/")[0]] += time
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--term", default="content_bias", help="a term of attention (default: %(default)s)")
    parser.add_argument("--build", type=Path, default=Path("build/release"), help="a build folder of ninja")
    parser.add_argument("--tree", type=Path, default=Path(__file__).parents[1], help="a checkout")
    given = parser.parse_args()
    tree = given.tree.resolve()
    texts = {path: path.read_text(errors="replace") for path in tracked(tree) if path.is_file()}
    sources = {path: text for path, text in texts.items() if path.suffix in SOURCES}

    named = [path for path, text in texts.items() if re.search(rf"\b{given.term}\b", text)]
    print(f"files that mention {given.term}: {len(named)}")
    for path in named:
        print(f"  {path.relative_to(tree)}")
    print("longest signatures")
    for number, name in longest_signatures(sources, tree, 5):
        print(f"  {number:3} {name}")
    print("lines, files")
    for module in MODULES:
        own = [text for path, text in texts.items() if module_of(path, tree) == module]
        print(f"  {sum(text.count(chr(10)) for text in own):6} {len(own):5} {module}")
    if (log := given.build / ".ninja_log").is_file():
        seconds = build_seconds(log)
        print(f"seconds of one core to build, as measured when each file was last built: {sum(seconds.values()):.0f}")
        for module, time in seconds.most_common():
            print(f"  {time:6.0f} {module}")


if __name__ == "__main__":
    main()
