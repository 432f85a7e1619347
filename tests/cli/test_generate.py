"""roformer generate against transformers, and what it refuses."""

import json

import pytest
import torch
import transformers

from cli_support import refused, results
from engine_case import make_causal

CLS, SEP = 258, 259  # of the tokenizer of bytes
PROMPTS = ["abc", "the people", "x", "zwölf"]


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    """transformers' model, and its directory with a tokenizer of bytes."""
    folder = tmp_path_factory.mktemp("causal") / "model"
    results("vocab", "--bytes", "--output", folder)
    return make_causal("RoFormer", folder, vocab_size=261, max_position_embeddings=128), folder


def ids_of(prompt):
    return [CLS, *prompt.encode()]


def oracle_generate(oracle, prompt, eos, **options):
    with torch.no_grad():
        rows = oracle.generate(torch.tensor([ids_of(prompt)]), eos_token_id=eos, **options)
    new = [row[len(ids_of(prompt)) :] for row in rows.tolist()]
    return [row[: row.index(eos) + 1] if eos in row else row for row in new]


def decoded(folder, prompt, ids):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return tokenizer.decode(ids_of(prompt) + ids, skip_special_tokens=True)[len(prompt) :]


def test_greedy(case, tmp_path):
    oracle, folder = case
    asked = [argument for prompt in PROMPTS for argument in ("--prompt", prompt)]
    ours = results("generate", "--model", folder, *asked, "--max-new-tokens", 12)
    for number, (prompt, row) in enumerate(zip(PROMPTS, ours, strict=True)):
        (expected,) = oracle_generate(oracle, prompt, SEP, do_sample=False, max_new_tokens=12)
        assert row["ids"] == expected
        assert row["text"] == decoded(folder, prompt, expected)
        assert (row["index"], row["sequence"], row["prompt"]) == (number, 0, prompt)
        assert row["stopped"] == (expected[-1] == SEP)
        assert "score" not in row
    # The same prompts as lines of a file and of standard input.
    lines = "\n".join(PROMPTS) + "\n"
    (tmp_path / "prompts.txt").write_text(lines)
    common = ["generate", "--model", folder, "--max-new-tokens", 12, "--batch", 1]
    assert results(*common, "--input", tmp_path / "prompts.txt") == ours
    assert results(*common, "--input", "-", "--threads", 2, stdin=lines) == ours


def test_a_record_is_one_prompt(case, tmp_path):
    oracle, folder = case
    records = [{"text": "<user>\nhi\n\n<assistant>\n"}, {"text": ""}, {"text": None}, {"label": 1}, {"text": " x\r\n"}]
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(map(json.dumps, records)))
    common = ["generate", "--model", folder, "--max-new-tokens", 4, "--input", path]
    rows = results(*common, "--skip-bad-records", "--batch", 1)
    assert [row["index"] for row in rows] == [0, 1, 2, 3, 4]
    for row, record in zip(rows, records, strict=True):
        prompt = record.get("text") or ""
        assert row["prompt"] == prompt
        if "text" in record:
            assert [row["ids"]] == oracle_generate(oracle, prompt, SEP, do_sample=False, max_new_tokens=4)
        else:
            assert "prompts.jsonl line 4" in row["error"]
    assert "prompts.jsonl line 4" in refused(*common, code=1)
    # A line of a text file, and a field of a table that spans lines.
    (tmp_path / "p.txt").write_text("a\n\nb\n")
    (tmp_path / "p.csv").write_text('text,n\n"a\nb",1\n,2\n')
    for name, prompts in (("p.txt", ["a", "", "b"]), ("p.csv", ["a\nb", ""])):
        rows = results(*common[:-1], tmp_path / name)
        assert [(row["index"], row["prompt"]) for row in rows] == list(enumerate(prompts))


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--prompt", "a", "--temperature", "inf"], 2, "[generate] temperature must be finite, got inf"),
        (["--prompt", "a", "--max-new-tokens", 2**63 - 1], 2, "[generate] max_new_tokens must be in 1..1073741824"),
        (["--prompt", "a", "--stop", ""], 1, '[generate] --stop must have at least one character, got ""'),
        (["--prompt", "a", "--beams", 2, "--top-k", 3], 2, "[generate] --beams must be without sampling, got --top-k"),
        (["--prompt", "a", "--length-penalty", 2], 2, "[generate] --length-penalty must be with --beams, got none"),
        (["--prompt", "a", "--seed", 2], 2, "[generate] --seed must be with sampling"),
        (["--prompt", "a", "--num-return-sequences", 2], 2, "[generate] --num-return-sequences must be 1 without"),
        (["--prompt", "a", "--stop", "b", "--no-stop"], 2, "[generate] --no-stop must be without --stop, got both"),
        (["--prompt", "a", "--beams", 2, "--json-schema", "x"], 2, "[generate] --json-schema must be without --beams"),
        (["--prompt", "a", "--min-new-tokens", 2, "--json"], 2, "[generate] --json must be without --min-new-tokens"),
        ([], 2, "[generate] either --prompt or --input must be given, got none"),
        (["--prompt", "a", "--input", "-"], 2, "[generate] either --prompt or --input must be given, got both"),
        (["--prompt", "a", "--beams", 2**63 - 1], 1, "[generate] 2 candidates for each beam must be at most the 261"),
    ],
)
def test_refused(case, options, code, message):
    _, folder = case
    assert refused("generate", "--model", folder, *options, code=code).startswith(message)
