"""Texts of rotary decoders, by `roformer generate` and from Python, beside transformers and the library tokenizers."""

import json
import re

import pytest
import tokenizers
import torch

import cli_support
from chat_model import save_chat_model
from cli_support import results, run
from roformer_cpp import Engine, Tokenizer
from rotary_decoders import SAMPLES, SPECIALS, make_decoder, make_tokenizer, write_gguf

VOCAB = 330


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    """transformers' model, its tokenizer, and the same as a directory and as a GGUF file."""
    folder = tmp_path_factory.mktemp("models")
    oracle = make_decoder("llama", folder / "directory", vocab_size=VOCAB)
    tokenizer = make_tokenizer(size=VOCAB - 3)  # fewer tokens than rows
    write_tokenizer(folder / "directory", tokenizer)
    path = write_gguf(oracle, folder / "model.gguf", "F32", (make_tokenizer(size=VOCAB), "smollm"))
    return oracle, tokenizer, folder / "directory", path


def write_tokenizer(folder, tokenizer):
    tokenizer.save(str(folder / "tokenizer.json"))
    tokens = dict(zip(("unk_token", "bos_token", "eos_token"), SPECIALS, strict=False))
    keys = {"tokenizer_class": "GPT2Tokenizer", **tokens}
    (folder / "tokenizer_config.json").write_text(json.dumps(keys))


def continued(oracle, prompt, end):
    options = dict(max_new_tokens=12, do_sample=False, eos_token_id=end, pad_token_id=0)
    with torch.no_grad():
        return oracle.generate(torch.tensor(prompt)[None], **options)[0].tolist()[len(prompt) :]


@pytest.mark.parametrize("form", ["directory", "gguf"])
def test_text(case, form):
    oracle, tokenizer, folder, path = case
    model, tokenizer = (folder, tokenizer) if form == "directory" else (path, make_tokenizer(size=VOCAB))
    prompts = [option for text in SAMPLES for option in ("--prompt", text)]
    lines = results("generate", "--model", model, *prompts, "--max-new-tokens", 12)
    engine = Engine(model)
    for text, line in zip(SAMPLES, lines, strict=True):
        (from_python,) = engine.generate(text, max_new_tokens=12)
        assert all(from_python[key] == line[key] for key in ("text", "ids", "stopped"))
        prompt = tokenizer.encode(text).ids
        assert line["ids"] == continued(oracle, prompt, 2)
        known = [id for id in prompt + line["ids"] if id < tokenizer.get_vocab_size()]
        assert tokenizer.decode(prompt) + line["text"] == tokenizer.decode(known)
        assert line["stopped"] == (line["ids"][-1] == 2)


def test_a_file_of_any_name(case, tmp_path):
    """GGUF files are recognised by their first bytes, as in caches whose files are named by a hash."""
    *_, path = case
    other = tmp_path / "blob"
    other.symlink_to(path)
    options = ("--prompt", "the people", "--max-new-tokens", 4)
    assert results("generate", "--model", other, *options) == results("generate", "--model", path, *options)
    assert Engine(other).generate("fox", max_new_tokens=3) == Engine(path).generate("fox", max_new_tokens=3)
    assert Tokenizer(other).encode("the people") == Tokenizer(path).encode("the people")
    (tmp_path / "text").write_text("GGML")
    with pytest.raises(NotADirectoryError):
        Tokenizer(tmp_path / "text")


def test_beyond_the_context(case):
    for count, is_beyond in ((63, False), (64, True)):
        for stream in ((), ("--stream",)):
            options = ("--prompt", "The", "--no-stop", "--max-new-tokens", count, *stream)
            done = run("generate", "--model", case[2], *options)
            assert done.returncode == 0 and ("at most the 64 tokens" in done.stderr) == is_beyond, done


def test_a_prompt_without_tokens_is_refused_by_name(case, tmp_path):
    """This tokenizer puts no token before a text: an empty one has nothing to continue, and the others do."""
    (tmp_path / "p.txt").write_text("the\n\npeople\n")
    rows = results("generate", "--model", case[2], "--max-new-tokens", 2, "--input", tmp_path / "p.txt")
    assert [(row["index"], row["prompt"]) for row in rows] == [(0, "the"), (1, ""), (2, "people")]
    assert "p.txt line 2 must have a prompt of at least one token" in rows[1]["error"]
    assert "error" not in rows[0] and "error" not in rows[2]
    message = refused("--model", case[2], "--prompt", "the", "--prompt", "")
    assert message.startswith('[generate] a prompt must have at least one token, got ""')


@pytest.mark.parametrize("by", ["key", "text"])
def test_ends_of_gguf(by, tmp_path):
    """Where transformers ends with the token that the file names as the end of a turn, or whose text says it."""
    oracle = make_decoder("llama", vocab_size=VOCAB)
    tokenizer = make_tokenizer(size=VOCAB)
    prompt = tokenizer.encode(SAMPLES[0]).ids
    end = continued(oracle, prompt, -1)[4]
    if by == "text":  # SPECIALS[0], <|endoftext|>, wins in place of it
        with torch.no_grad():
            oracle.lm_head.weight[0] = 2 * oracle.lm_head.weight[end]
        end = 0
    theirs = continued(oracle, prompt, end)
    assert theirs[-1] == end and len(theirs) < 12
    extra = {"add_eot_token_id": end} if by == "key" else {}
    path = write_gguf(oracle, tmp_path / "model.gguf", "F32", (tokenizer, "smollm"), extra)
    (line,) = results("generate", "--model", path, "--prompt", SAMPLES[0], "--max-new-tokens", 12)
    assert line["ids"] == theirs and line["stopped"]


def test_a_saved_tokenizer_of_gguf(case, tmp_path):
    Tokenizer.from_pretrained(case[3]).save_pretrained(tmp_path)
    saved, tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json")), make_tokenizer(size=VOCAB)
    assert [saved.encode(text).ids for text in SAMPLES] == [tokenizer.encode(text).ids for text in SAMPLES]


def refused(*arguments, code=1):
    message = cli_support.refused("generate", *arguments, code=code)
    assert message.count("\n") == 1
    return message


def test_errors(case, tmp_path):
    oracle, tokenizer, folder, _ = case
    one = ("--prompt", "a")
    make_decoder("llama", tmp_path / "bare")
    assert "a model of this type must have a tokenizer.json or" in refused("--model", tmp_path / "bare", *one)
    small = tmp_path / "small"
    make_decoder("llama", small, vocab_size=100)
    write_tokenizer(small, tokenizer)
    assert "must be at least its vocabulary's 327, got 100" in refused("--model", small, *one)
    plain = write_gguf(oracle, tmp_path / "plain.gguf")
    assert "tokenizer.ggml.model must be bert, gpt2, llama or t5, got none" in refused("--model", plain, *one)
    bytes_only = write_gguf(oracle, tmp_path / "bytes.gguf", tokenizer=(make_tokenizer(size=VOCAB), "smollm"))
    bytes_only.write_bytes(bytes_only.read_bytes().replace(b"tokenizer.ggml.merges", b"tokenizer.ggml.absent"))
    assert "tokenizer.ggml.merges must have merges, got none" in refused("--model", bytes_only, *one)
    other = write_gguf(oracle, tmp_path / "other.gguf", tokenizer=(make_tokenizer(size=VOCAB), "kimi-k2"))
    assert "tokenizer.ggml.pre must be gpt-2, olmo, phi-2" in refused("--model", other, *one)
    stream = ("--model", folder, "--stream")
    assert "--stream must be with one --prompt, got 2" in refused(*stream, *one, *one, code=2)
    assert "--stream must be without --beams" in refused(*stream, *one, "--beams", 2, code=2)


def test_draft(tmp_path):
    """A draft that is the model itself is always right; another one is counted, and refused with options it lacks."""
    save_chat_model(tmp_path / "model")
    save_chat_model(tmp_path / "other", num_hidden_layers=1)
    options = ("generate", "--model", tmp_path / "model", "--prompt", "one", "--prompt", "a b", "--no-stop")
    plain = run(*options)
    for draft, share in (("model", r"(\d+) of \1"), ("other", r"\d+ of \d+")):
        drafted = run(*options, "--draft", tmp_path / draft, "--draft-tokens", "3")
        assert drafted.stdout == plain.stdout
        assert re.search(f"draft: {share} tokens accepted", drafted.stderr)
    streamed = (*options[:5], "--no-stop", "--stream")
    text = json.loads(plain.stdout.splitlines()[0])["text"]
    assert text and run(*streamed).stdout == run(*streamed, "--draft", tmp_path / "model").stdout == text + "\n"
    cli_support.refused(*options, "--draft", tmp_path / "other", "--beams", "2", code=2)
    cli_support.refused(*options, "--draft-tokens", "2", code=2)
