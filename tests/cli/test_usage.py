"""Wrong command lines: exit code 2 and one sentence "[usage] --x must ..., got ...", whatever the parser found."""

import pytest

from cli_support import needs_program, refused, results

HELP = " (roformer {} --help lists the options)\n"
ACCEPTED = "must be one of"
WHOLE = "must be an integer from {} in decimal digits, got"
PARTS = ("3/2", "0/3", "2", "1/", "/3", "1/3x", "-1/3", "1.0/3", "", "99999999999999999999/3")  # that are none
COLUMNS = ("", "text", "text=", "=a", 'text="a', 'text="a"b', "text=a,text=b", 'text="a,b"",c"x')  # nor are these


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ("info --threads 0", f'--threads {WHOLE.format("1 to 1024")} "0"'),
        ("info --threads many", f'--threads {WHOLE.format("1 to 1024")} "many"'),
        ("info --threads=", f'--threads {WHOLE.format("1 to 1024")} ""'),
        ("vocab --size=0x1", f'--size {WHOLE.format("-2^63 to 2^63 - 1")} "0x1"'),
        ("vocab --size=01", f'--size {WHOLE.format("-2^63 to 2^63 - 1")} "01"'),
        ("evaluate --seed=-1", f'--seed {WHOLE.format("0 to 2^63 - 1")} "-1"'),
        ("evaluate --seed=9223372036854775808", f'--seed {WHOLE.format("0 to 2^63 - 1")} "9223372036854775808"'),
        ("tokenize --seed 1", 'an option of tokenize must be a known one, got "--seed"'),
        ("info --threads", "--threads must have a value, got none"),
        ("info --threads 1 --threads 2", "--threads must be given once, got 2 times"),
        ("info --json", "--json must be with --encodings, got it alone"),
        ("info --encodings --json=true", '--json must be without a value, got "true"'),
        ("info more", 'an argument of info must be an option or its value, got "more"'),
        ("info predict", 'an argument of info must be an option or its value, got "predict"'),
        ("info -x", 'an argument of info must be an option or its value, got "-x"'),
        ("info [x]", 'an argument of info must be an option or its value, got "[x]"'),
        ("info --", 'an argument of info must be an option or its value, got "--"'),
        ("info --jsn", 'an option of info must be a known one, got "--jsn"; did you mean --json?'),
        ("embed", "--model must be given, got none"),
        ("predict --model m", "one of --input and --text must be given, got none"),
        ("tokenize --model m --vocab v", "one of --model and --vocab must be given, got --model and --vocab"),
        ("finetune --model m --train t --output o --task tokens", "one of --valid and --valid-fraction must be given"),
        ("tokenize --model m --stride 1", "--stride must be with --overflow, got it alone"),
        ("embed --model m --text a --prompt b --prompt-name c", "--prompt must be without --prompt-name, got both"),
        ("vocab --input i --output o --byte-pairs --cased", "--cased must be without --byte-pairs, got both"),
        ("prepare --input i --model m --output o --valid-input v --valid-fraction 0.1",
         "--valid-fraction must be without --valid-input, got both"),
        ("embed --model m --text a --max-length 0", f'--max-length {WHOLE.format("1 to 2^63 - 1")} "0"'),
        ("embed --model m --text a --dimensions 0", f'--dimensions {WHOLE.format("1 to 2^63 - 1")} "0"'),
        ("embed --model m --text a --format xml", "--format must be auto, text, jsonl, csv, tsv or parquet, got"),
        ("embed --model m --text a --pooling sum", "--pooling must be cls, last, max, mean, mean-sqrt-len, pooler or"),
        ("embed --model m --text a --precision fp16", f'--precision {ACCEPTED} bfloat16, float32, int8, got "fp16"'),
        ("finetune --precision fp16", f'--precision {ACCEPTED} bfloat16, float32, got "fp16"'),
        ("finetune --classifier-pooling max", f'--classifier-pooling {ACCEPTED} cls, mean, got "max"'),
        ("rerank --activation gelu", "--activation must be identity, sigmoid, tanh or relu, got"),
        ("generate --temperature=", '--temperature must be a decimal number that fits into 64 bits, got ""'),
        ("generate --temperature 1e400", '--temperature must be a decimal number that fits into 64 bits, got "1e400"'),
        ("finetune --learning-rates 1,x", '--learning-rates must be a decimal number that fits into 64 bits, got "x"'),
        *((f"prepare --part={part}", f'--part must be i/n with 1 <= i <= n, got "{part}"') for part in PARTS),
        *((f"predict --columns={given}", "--columns must give each once, as name=field, got ") for given in COLUMNS),
    ],
)  # fmt: skip
def test_rules(given, rule):
    message = refused(*given.split(" "), code=2)
    assert message.startswith(f"[usage] {rule}"), message
    assert message.endswith(HELP.format(given.split(" ")[0])) and message.count("\n") == 1


def test_commands():
    assert "did you mean fill-mask?" in refused("fillmask", "--model", "x", code=2)
    assert "roformer --help lists them" in refused(code=2)


def test_commands_of_python():
    needs_program()
    for name in ("train-embedding", "plot-attention"):
        module = "roformer_cpp." + name.replace("-", "_")
        assert f"`python -m {module}`" in refused(name, "--model", "x", "y", code=2)


@pytest.mark.parametrize("given", ["--nope", "-x", "--", "--threads"])
def test_options_before_the_command(given):
    rule = f'[usage] an option before the command must be --help or --version, got "{given}"'
    assert refused(given, "info", code=2).startswith(rule)
    assert refused(given, code=2).startswith(rule)


def test_dashes_are_a_value(sentence_encoder):
    """Where a command has options alone, wherever they stand."""
    for given in (["--"], ["a", "--"], ["--", "a", "--", "--"]):
        lines = results("embed", "--model", sentence_encoder, "--text", *given, "--threads", 1)
        assert [line["text"] for line in lines] == given
    assert 'got "--"' in refused("embed", "--text", "a", "--model", "--", "--", code=2)


def test_a_directory_after_dashes(tmp_path):
    """Where an argument may be none of an option, they end the options."""
    assert str(tmp_path) in refused("doctor", "--", tmp_path)
