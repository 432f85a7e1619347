"""The experiments that count and time."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from experiments import chinese_tokens, cost, run, timing  # noqa: E402


def values(rows, measure, arm):
    return [row["value"] for row in rows if (row["measure"], row["arm"]) == (measure, arm)]


def test_chinese_tokens_are_counted(tmp_path):
    words, characters = ["今天", "天气"], ["今", "天", "气", "好"]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    for name in ("vocabs", "zh_laws", "zh_classics"):
        (tmp_path / name).mkdir()
    (tmp_path / chinese_tokens.CHARACTERS).write_text("\n".join([*special, *characters]) + "\n")
    (tmp_path / chinese_tokens.WORDS).write_text("\n".join([*special, *characters, *words]) + "\n")
    dictionary = "".join(f"{word} 1000 n\n" for word in [*words, *characters])
    (tmp_path / chinese_tokens.DICTIONARY).write_text(dictionary)
    laws, novel = ["今天好", "天气好好"], "今天\n天气今天"
    (tmp_path / chinese_tokens.TEXTS[0]).write_text("".join(f'{{"text": "{text}"}}\n' for text in laws))
    for name in chinese_tokens.TEXTS[1:]:
        (tmp_path / name).write_text(novel)
    context = run.Context(tmp_path / "out", tmp_path, "any")
    rows = list(chinese_tokens.run(context, chinese_tokens.settings()))
    # Laws: 7 characters, 5 words. The novel: 6 characters beside a line's end, 3 words.
    assert values(rows, "word tokens by character tokens", chinese_tokens.TEXTS[0]) == [pytest.approx(5 / 7)]
    assert values(rows, "word tokens by character tokens", chinese_tokens.TEXTS[1]) == [0.5]
    assert values(rows, "character tokens per 1,000 characters", chinese_tokens.TEXTS[1]) == [pytest.approx(6000 / 7)]
    assert values(rows, "word tokens by character tokens: largest", "texts") == [pytest.approx(5 / 7)]


@pytest.fixture
def clock(monkeypatch):
    """A clock that calls move."""
    now = [0.0]
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])

    def call_of(seconds):
        def call():
            now[0] += seconds

        return call

    return call_of


def test_seconds_by_round(clock):
    fast, slow = timing.seconds_by_round([clock(0.25), clock(2.0)], rounds=3, window_seconds=1.0)
    assert fast == [0.25] * 3 and slow == [2.0] * 3


def test_the_power_of_times(monkeypatch):
    """Times that grow with the square of the tokens, and with the tokens, from power_from on."""
    tokens = iter(cost.attention_settings("tiny")["tokens"])

    def times(calls, rounds, _):
        count = next(tokens)
        linear = 1.0 if count == 128 else count
        return [[count**2] * rounds, [linear] * rounds]

    monkeypatch.setattr(cost, "seconds_by_round", times)
    rows = list(cost.run_attention(None, cost.attention_settings("tiny")))
    assert values(rows, cost.POWER, "softmax") == pytest.approx([2] * 3)
    assert values(rows, cost.POWER, "linear") == pytest.approx([1] * 3)


def test_the_product_with_the_matrix_is_the_rotation():
    settings = cost.rotation_settings("tiny") | {"tokens": 16, "window_seconds": 0.0}
    rows = list(cost.run_rotation(None, settings))
    assert values(rows, "difference of the product from the rotation", "product with the matrix R")[0] < 1e-5
    rope, dense = (values(rows, "milliseconds", arm) for arm in ("rotation", "product with the matrix R"))
    expected = [one / other for one, other in zip(dense, rope, strict=True)]
    assert values(rows, "time, of that of the rotation", "product with the matrix R") == pytest.approx(expected)
