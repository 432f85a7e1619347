"""Conversations by `roformer chat` and `roformer generate --chat`, compared with transformers' chat templates and
generate()."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import subprocess
import termios

import pytest

from chat_model import answer, save_channel_model, save_chat_model
from cli_support import PROGRAM, hear_interrupts, refused, results, run

COUNT = 10


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chat")
    return *save_chat_model(folder), folder


def user(text):
    return {"role": "user", "content": text}


def conversation(oracle, tokenizer, texts, system=None):
    """Answers, and tokens of the prompts."""
    messages = [{"role": "system", "content": system}] if system else []
    for text in texts:
        messages.append(user(text))
        said, tokens = answer(oracle, tokenizer, messages, COUNT)
        messages.append({"role": "assistant", "content": said})
        yield said, tokens


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_piped(case, precision):
    """A line is a message; the answers of bfloat16 and int8 are those to the same history in one call."""
    oracle, tokenizer, folder = case
    texts = ["the people", "don't", "3 lazy dogs"]
    options = ("--model", folder, "--max-new-tokens", COUNT, "--precision", precision)
    done = run("chat", *options, "--system", "quick", stdin="\n".join(texts))
    assert done.returncode == 0 and done.stderr == ""
    if precision == "float32":
        expected = [said for said, _ in conversation(oracle, tokenizer, texts, "quick")]
        assert done.stdout == "".join(said + "\n" for said in expected)
        return
    messages, answers = [], []
    asked = ("generate", *options, "--chat", "--system", "quick", "--input", "-", "--format", "jsonl")
    for text in texts:
        messages.append(user(text))
        answers += results(*asked, stdin=json.dumps({"text": messages}))
        messages.append({"role": "assistant", "content": answers[-1]["text"]})
    assert done.stdout == "".join(line["text"] + "\n" for line in answers)


def test_commands(case):
    oracle, tokenizer, folder = case
    lines = ["a", "/reset ", "a", "/system quick", "a", "/system", "a", "", "/quit", "a"]
    done = run("chat", "--model", folder, "--max-new-tokens", COUNT, stdin="\r\n".join(lines))
    ((alone, _),) = conversation(oracle, tokenizer, ["a"])
    ((after, _),) = conversation(oracle, tokenizer, ["a"], "quick")
    assert done.stdout == "".join(text + "\n" for text in (alone, alone, after, alone))
    assert done.returncode == 0 and done.stderr == ""
    assert "a line with / in front must be /help" in run("chat", "--model", folder, stdin="/x\x1b y").stderr
    for command, given, rule in (
        (["chat"], b"\xff", b"[chat] a message must be UTF-8, got"),
        (["chat"], b"a\xe2\x82", b"[chat] a message must be UTF-8, got"),
        (["chat"], b"/system \xff", b"[chat] a system message must be UTF-8, got"),
        (["chat", "--system", b"\xff"], b"a", b"must be UTF-8"),
        (["generate", "--chat", "--prompt", "a", "--system", b"\xff"], b"", b"must be UTF-8"),
        (["generate", "--chat", "--prompt", b"a\xff"], b"", b"must be UTF-8"),
    ):
        done = subprocess.run([PROGRAM, *command, "--model", folder], input=given, capture_output=True, check=False)
        assert done.returncode == 1 and done.stdout == b"" and rule in done.stderr, done
        assert done.stderr.count(b"\n") == 1


def test_generate(case, tmp_path):
    """Prompts are messages; records are messages or conversations."""
    oracle, tokenizer, folder = case
    options = ("--model", folder, "--chat", "--max-new-tokens", COUNT)
    lines = results("generate", *options, "--prompt", "the people", "--prompt", "fox")
    for text, line in zip(("the people", "fox"), lines, strict=True):
        assert line["prompt"] == text and line["text"] == answer(oracle, tokenizer, [user(text)], COUNT)[0]
    streamed = run("generate", *options, "--prompt", "fox", "--stream", "--system", "quick").stdout
    assert [streamed] == [said + "\n" for said, _ in conversation(oracle, tokenizer, ["fox"], "quick")]
    chat = [user("a"), {"role": "assistant", "content": None}, user([{"type": "text", "text": "dogs"}])]
    plain = [user("a"), {"role": "assistant", "content": ""}, user("dogs")]
    rows = [{"messages": chat, "id": 7}, {"messages": "fox"}, {"messages": [{"content": "x"}]}, {"messages": 5}]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = ("--input", tmp_path / "p.jsonl", "--field", "messages")
    first, second, third, fourth = results("generate", *options, *given, "--skip-bad-records")
    assert first["text"] == answer(oracle, tokenizer, plain, COUNT)[0]
    assert json.loads(first["prompt"]) == chat and first["id"] == 7
    assert second["text"] == lines[1]["text"]
    assert "line 3 must be a chat, got: [generate] a message must be an object with a role" in third["error"]
    assert 'line 4 must have a text or null as "messages"' in fourth["error"]


@pytest.mark.parametrize("channel", ["analysis", "final"])
def test_channels(channel, tmp_path):
    """Of gpt-oss: their marks are not shown."""
    save_channel_model(tmp_path, channel)
    done = run("chat", "--model", tmp_path, stdin="a\n")
    assert (done.returncode, done.stdout) == (0, "The7\n"), done
    asked = ("generate", "--model", tmp_path, "--chat", "--prompt", "a")
    assert run(*asked, "--stream").stdout == "The7\n"
    (line,) = results(*asked)
    expected = ("", "The7") if channel == "analysis" else ("The7", None)
    assert (line["text"], line.get("reasoning")) == expected


def test_refused(case, tmp_path):
    alone = refused("generate", "--model", case[2], "--prompt", "a", "--system", "b", code=2)
    assert "--system must be with --chat, got it alone" in alone
    (tmp_path / "empty").write_text("\n")
    said = refused("chat", "--model", case[2], stdin=f"/read {tmp_path / 'empty'}\n")
    assert "a message must have more than white space" in said
    for option, value, rule in (
        ("--seed", 1, "--seed must be with sampling"),
        ("--temperature", -1, "temperature must be above 0, got -1"),
        ("--top-k", -3, "top_k must be at least 0, got -3"),
        ("--top-p", 1.5, "top_p must be above 0 and at most 1, got 1.5"),
        ("--repetition-penalty", 0, "repetition_penalty must be above 0, got 0"),
        ("--max-new-tokens", 0, "max_new_tokens must be in 1..1073741824, got 0"),
    ):
        assert refused("chat", "--model", "absent", option, value, code=2).startswith(f"[chat] {rule}")
    save_chat_model(tmp_path, "{{ raise_exception('no') }}")
    assert "no" in run("chat", "--model", tmp_path, stdin="a").stderr
    (tmp_path / "tokenizer_config.json").write_text("{}")
    assert "a chat must have a model with a chat template" in run("chat", "--model", tmp_path, stdin="a").stderr


def control_terminal():
    """The preexec_fn of a child whose standard input is its terminal, so that Ctrl-C reaches it."""
    hear_interrupts()
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Terminal:
    def __init__(self, *arguments):
        self.ours, theirs = pty.openpty()
        options = dict(stdin=theirs, stdout=theirs, stderr=theirs, preexec_fn=control_terminal)
        command = [PROGRAM, "chat", *map(str, arguments)]
        self.child = subprocess.Popen(command, env=dict(os.environ, OMP_NUM_THREADS="1"), **options)
        os.close(theirs)
        self.text = ""

    def until(self, pattern):
        """What is shown up to a match."""
        while not (found := re.search(pattern, self.text)):
            assert select.select([self.ours], [], [], 60)[0], (pattern, self.text)
            self.text += os.read(self.ours, 65536).decode(errors="replace")
        shown, self.text = self.text[: found.end()], self.text[found.end() :]
        return shown

    def say(self, line):
        os.write(self.ours, line.encode() + b"\n")

    def close(self):
        self.child.kill()
        self.child.wait()
        os.close(self.ours)


@pytest.fixture
def terminal(request):
    opened = []

    def start(*arguments):
        opened.append(Terminal(*arguments))
        return opened[0]

    yield start
    opened[0].close()


SPEED = r"\[read (\d+) of (\d+) tokens, [\d.]+ tokens/s; wrote (\d+), [\d.]+ tokens/s\]"


def test_terminal(case, terminal):
    """The second prompt is computed from where it differs; Ctrl-C ends an answer and not the program."""
    oracle, tokenizer, folder = case
    chat = terminal("--model", folder, "--max-new-tokens", COUNT)
    chat.until("> ")
    texts = ["quick brown", "fox"]
    expected = list(conversation(oracle, tokenizer, texts))
    before = 0
    for text, (said, tokens) in zip(texts, expected, strict=True):
        chat.say(text)
        shown = chat.until(SPEED)
        assert said.splitlines()[0] in shown.replace("\r\n", "\n") or not said.isprintable()
        assert "\x1b" not in shown
        read, of, wrote = map(int, re.search(SPEED, shown).groups())
        assert of == tokens and wrote <= COUNT
        assert read <= of - before
        before = of
        chat.until("> ")
    chat.say("/help")
    assert "/reset" in chat.until("Ctrl-C")
    chat.say("/bad")
    chat.until("must be /help")
    chat.until("> ")
    os.kill(chat.child.pid, signal.SIGINT)  # at the prompt
    chat.until("/quit ends the program")
    chat.until("> ")
    chat.say("/quit")
    assert chat.child.wait(timeout=60) == 0


def test_long_lines(case, tmp_path, terminal):
    """A terminal drops what is longer than its buffer: such a line is refused, and a file is read whole. The count of
    new tokens includes the last one."""
    oracle, tokenizer, folder = case
    chat = terminal("--model", folder, "--max-new-tokens", COUNT, "--no-stop")
    chat.until("> ")
    for count in (4095, 5000):
        chat.say("a" * count)
        chat.until(r"a line of a terminal must have at most 4094 bytes, got more \(/read FILE sends longer texts\)")
        chat.until("> ")
    (tmp_path / "long.txt").write_text("dogs\n" * 70)
    chat.say(f"/read {tmp_path / 'long.txt'}")
    read, of, wrote = map(int, re.search(SPEED, chat.until(SPEED)).groups())
    assert read == of == answer(oracle, tokenizer, [user("dogs\n" * 70)], COUNT)[1]
    assert wrote == COUNT
    chat.until("> ")
    chat.say("/read absent")
    chat.until("absent")
    chat.until("> ")


def test_interrupted(tmp_path, terminal):
    save_chat_model(tmp_path, max_position_embeddings=9000)
    chat = terminal("--model", tmp_path, "--no-stop", "--max-new-tokens", 8000, "--sample")
    chat.until("> ")
    for message in "ab" * 100:  # a signal in 20 comes within a write
        chat.say(message)
        chat.until(message + r"\r\n.")
        os.write(chat.ours, b"\x03")  # the terminal makes a signal of it
        assert 0 < int(re.search(SPEED, chat.until(SPEED))[3]) < 8000
        chat.until("> ")
        chat.say("/reset")
        chat.until("> ")
    os.write(chat.ours, b"\x04")
    assert chat.child.wait(timeout=60) == 0


def test_full_context(tmp_path):
    save_chat_model(tmp_path, max_position_embeddings=40)
    done = run("chat", "--model", tmp_path, "--no-stop", stdin="a\n" * 9)
    assert done.returncode == 1
    assert "[chat] the conversation must have fewer tokens than the context's 40, got" in done.stderr
    assert done.stdout.count("\n") >= 1
