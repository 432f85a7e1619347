"""docs/troubleshooting.md: its messages are those of the sources; some are caused here."""

import re

import pytest
import torch

import roformer_cpp
from cli_support import refused
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


def is_on_the_page(message):
    return any(all(part in message for part in parts(known)) for known in messages())


def test_messages_of_the_command_line(tmp_path):
    (tmp_path / "texts.txt").write_text("a\n")
    (tmp_path / "texts.jsonl").write_text('{"other": 1}\n')
    output = tmp_path / "vectors.npz"
    vocabulary = tmp_path / "v" / "vocab.txt"
    for arguments in (
        ["vocab", "--input", tmp_path / "*.nothing", "--size", 100, "--output", vocabulary],
        ["vocab", "--input", tmp_path / "texts.jsonl", "--size", 100, "--output", vocabulary],
        ["fill-mask", "--model", tmp_path / "nothing", "--text", "a"],
        ["predict", "--model", tmp_path, "--text", "a"],
    ):
        message = refused(*arguments)
        assert is_on_the_page(message), message
    assert not output.exists()


@pytest.mark.parametrize(
    "call",
    [
        lambda q: roformer_cpp.rope(q, torch.arange(4)),
        lambda q: roformer_cpp.attention(q, q, q, mask=torch.zeros(1, 1, 4, 4)),
        lambda q: roformer_cpp.attention(q.double(), q.double(), q.double(), kernel="fused"),
        lambda q: roformer_cpp.attention(
            q, q, q, roformer_cpp.encoding("rope", head_dim=8).terms(torch.arange(4)), positions=torch.arange(1, 5)
        ),
        lambda q: roformer_cpp.load_model("nothing"),
    ],
)
def test_messages_of_python(call):
    with pytest.raises((TypeError, ValueError, RuntimeError, FileNotFoundError)) as error:
        call(torch.zeros(1, 4, 2, 8))
    assert is_on_the_page(str(error.value)), error.value
