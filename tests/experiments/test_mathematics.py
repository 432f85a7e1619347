"""The experiments without training: they find what was recorded, and count and time what they say."""

import json
from types import SimpleNamespace

import pytest

from experiment_sets import rows_of
from experiments import chinese_tokens, cost, random_features, recorded, run, timing

NAMES = ["permutation", "relative-score", "norm", "bilinear", "any-position", "sinusoid", "linear-attention"]
NAMES += ["pairwise", "decay", "score-by-distance"]
SOME = ("none", "shaw", "music", "transformer-xl", "fox", "log-n")
FEWER = {"permutation": {"seeds": [1]}, "sinusoid": {"positions": 2000}}
FEWER |= {"pairwise": {"encodings": dict(zip(SOME, SOME, strict=True)), "tokens": [64, 128, 256]}}
FEWER |= {"score-by-distance": {"samples": 40000, "distances": [0, 10, 1000]}}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    kept = {}

    def of(name):
        if name not in kept:
            experiment, _ = run.experiments()[name]
            changes = FEWER.get(name, {})
            kept[name] = list(experiment.run(None, experiment.settings_at("tiny") | changes))
        return kept[name]

    return of


def recorded_of(name):
    return recorded.read_result(recorded.RESULTS / "any" / f"{name}.parquet")


def by_key(rows, measure):
    return {(row["arm"], row["step"]): row["value"] for row in rows if row["measure"] == measure}


def values(rows, measure, arm):
    return [row["value"] for row in rows if (row["measure"], row["arm"]) == (measure, arm)]


@pytest.mark.parametrize("name", NAMES)
def test_verdicts_are_those_recorded(found, name):
    about = {"settings": {}, "scale": "any"}
    both = run.verdicts(name, found(name), about), recorded_of(name).verdicts
    now, before = ({claim: each["verdict"] for claim, each in judged.items()} for judged in both)
    assert now == before


def test_pairwise_states(found):
    states, before = (by_key(rows, "states by tokens") for rows in (found("pairwise"), recorded_of("pairwise").rows))
    assert len(states) == 18 and states == {key: before[key] for key in states}


DECAY = ("steps on which f rises", "lowest f beyond 512 tokens", "f by distance")


@pytest.mark.parametrize(
    ("name", "measure", "least"),
    [*(("decay", each, 7) for each in DECAY), ("linear-attention", "outputs of the worked example", 18)],
)
def test_recorded_values(found, name, measure, least):
    expected = by_key(recorded_of(name).rows, measure)
    assert len(expected) >= least and by_key(found(name), measure) == pytest.approx(expected, rel=1e-9)


def test_random_features_are_better_if_orthogonal(tmp_path):
    rows = rows_of(random_features, "random-features", tmp_path, None, lambda _: {"features": [16, 64, 256, 1024]})
    for arm in ("independent", "orthogonal"):
        (power,) = values(rows, random_features.POWER, arm)
        errors = values(rows, random_features.ERROR, arm)
        assert -0.65 < power < -0.35 and len(errors) == 4 and sorted(errors, reverse=True) == errors


# ---- counts and times


def test_chinese_tokens_are_counted(tmp_path):
    words, characters = ["今天", "天气"], ["今", "天", "气", "好"]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    texts = {
        chinese_tokens.CHARACTERS: "\n".join([*special, *characters]) + "\n",
        chinese_tokens.WORDS: "\n".join([*special, *characters, *words]) + "\n",
        chinese_tokens.DICTIONARY: "".join(f"{word} 1000 n\n" for word in [*words, *characters]),
        chinese_tokens.TEXTS[0]: "".join(json.dumps({"text": text}) + "\n" for text in ("今天好", "天气好好")),
    } | dict.fromkeys(chinese_tokens.TEXTS[1:], "今天\n天气今天")
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    rows = rows_of(chinese_tokens, "chinese-tokens", tmp_path / "out", tmp_path)
    # Laws: 7 characters, 5 words. The novel: 6 characters beside a line's end, 3 words.
    assert values(rows, "word tokens by character tokens", chinese_tokens.TEXTS[0]) == [pytest.approx(5 / 7)]
    assert values(rows, "word tokens by character tokens", chinese_tokens.TEXTS[1]) == [0.5]
    assert values(rows, "character tokens per 1,000 characters", chinese_tokens.TEXTS[1]) == [pytest.approx(6000 / 7)]
    assert values(rows, "word tokens by character tokens: largest", "texts") == [pytest.approx(5 / 7)]


def test_seconds_by_round(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def call_of(seconds):
        def call():
            now[0] += seconds

        return call

    fast, slow = timing.seconds_by_round([call_of(0.25), call_of(2.0)], rounds=3, window_seconds=1.0)
    assert fast == [0.25] * 3 and slow == [2.0] * 3


def test_the_power_of_times(monkeypatch, tmp_path):
    """Times that grow with the square of the tokens, and with the tokens, from power_from on."""
    tokens = iter(cost.attention_settings("tiny")["tokens"])

    def times(calls, rounds, _):
        count = next(tokens)
        linear = 1.0 if count == 128 else count
        return [[count**2] * rounds, [linear] * rounds]

    monkeypatch.setattr(cost, "seconds_by_round", times)
    rows = rows_of(cost, "attention-time", tmp_path, None)
    assert values(rows, cost.POWER, "softmax") == pytest.approx([2] * 3)
    assert values(rows, cost.POWER, "linear") == pytest.approx([1] * 3)


def test_the_product_with_the_matrix_is_the_rotation(tmp_path):
    rows = rows_of(cost, "rotation-cost", tmp_path, None, lambda _: {"tokens": 16, "window_seconds": 0.0})
    assert values(rows, "difference of the product from the rotation", "product with the matrix R")[0] < 1e-5
    rope, dense = (values(rows, "milliseconds", arm) for arm in ("rotation", "product with the matrix R"))
    expected = [one / other for one, other in zip(dense, rope, strict=True)]
    assert values(rows, "time, of that of the rotation", "product with the matrix R") == pytest.approx(expected)
