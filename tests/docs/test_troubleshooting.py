"""docs/troubleshooting.md: its messages are those of the sources."""

import re

from docs_pages import DOCS, ROOT

PAGE = DOCS / "troubleshooting.md"
# Those that Python writes, and the system.
NOT_OURS = [
    "missing 1 required keyword-only argument: 'layout'",
    "[…/vocab.txt] cannot open: No such file or directory",
]


def messages():
    """The first cells of the tables of messages."""
    text = PAGE.read_text(encoding="utf-8").split("## No message")[0]
    return re.findall(r"^\| `(.+?)` \|", text, re.MULTILINE)


def sources():
    """The sources with the parts of each literal text joined."""
    modules = ["cli", "core", "data", "engine", "io", "model", "nn", "ops", "python", "tasks", "text", "train"]
    paths = [path for m in modules for path in (ROOT / m).rglob("*") if path.suffix in (".cpp", ".h", ".py")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    return re.sub(r'"\s*\n\s*f?"', "", text).replace('\\"', '"')


def parts(message):
    """What stands between the names and numbers of a message."""
    return [part.strip(" ,;:") for part in message.split("…") if len(part.strip(" ,;:.")) > 3]


def test_messages_are_those_of_the_sources():
    text = sources()
    assert len(messages()) > 30
    for message in messages():
        if message not in NOT_OURS:
            assert parts(message) and all(part in text for part in parts(message)), (message, parts(message))
