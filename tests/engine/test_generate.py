"""Causal generation against transformers: greedy and beam search token for token, the distributions that sampling draws
from, and the draws themselves."""

import numpy as np
import pytest
import torch
from transformers.generation import logits_process

from engine_case import VOCAB, make_causal, make_oracle, make_sequences
from mersenne_twister import MersenneTwister64, seed_sequence
from rf_engine import EngineError
from rf_generation import CausalEngine, check_batches_and_threads

POSITIONS = 48
PROMPTS, _ = make_sequences((1, 13, 7, 2, 20, 7))


@pytest.fixture(scope="module", params=["RoFormer", "Bert"])
def case(request, tmp_path_factory):
    """transformers' model, and the same in the engine."""
    folder = tmp_path_factory.mktemp("model")
    oracle = make_causal(request.param, folder, max_position_embeddings=POSITIONS)
    return oracle, CausalEngine(folder)


def oracle_generate(oracle, prompt, stop_ids=(), presence_penalty=0, frequency_penalty=0, **options):
    """New ids of each sequence, to the first stop id, and their scores; penalties as OpenAI defines them."""

    def penalize(ids, scores):
        for row, new in zip(scores, ids[:, len(prompt) :], strict=True):
            tokens, counts = new.unique(return_counts=True)
            row[tokens] -= presence_penalty + frequency_penalty * counts
        return scores

    options |= dict(eos_token_id=list(stop_ids) or None, return_dict_in_generate=True, output_scores=True)
    ids = torch.tensor(np.asarray(prompt))[None].long()
    out = oracle.generate(ids, logits_processor=[penalize], do_sample=False, max_new_tokens=20, **options)
    rows = []
    for row in out.sequences[:, len(prompt) :].tolist():
        ends = [i for i, token in enumerate(row) if token in stop_ids]
        rows.append(row[: ends[0] + 1] if ends else row)
    return rows, getattr(out, "sequences_scores", None)


def log_probability(oracle, prompt, ids):
    """By the whole sequence at once."""
    tokens = torch.tensor([*np.asarray(prompt).tolist(), *ids])
    with torch.no_grad():
        rows = oracle(tokens[None]).logits[0, len(prompt) - 1 : -1].double().log_softmax(-1)
    return float(rows.gather(1, tokens[len(prompt) :, None]).sum())


GREEDY = [{}, {"repetition_penalty": 1.7}, {"repetition_penalty": 0.8}]
GREEDY += [{"presence_penalty": 1.5, "frequency_penalty": -0.4}]


@pytest.mark.parametrize("options, stop", [*((each, 0) for each in GREEDY), ({}, 2), ({"min_new_tokens": 5}, 2)])
def test_greedy(case, options, stop):
    oracle, engine = case
    stops = []
    if stop:
        # Ids that occur, so that prompts of the batch end at different steps; the penalty varies what occurs.
        options = options | {"repetition_penalty": 1.7}
        for prompt, step in ((PROMPTS[0], 4), (PROMPTS[2], 11)):
            ((ids,), _) = oracle_generate(oracle, prompt, repetition_penalty=1.7)
            stops.append(ids[step])
    ours = engine.generate(PROMPTS, stop_ids=stops, batch=3, **options)
    for prompt, (result,) in zip(PROMPTS, ours, strict=True):
        ((ids,), _) = oracle_generate(oracle, prompt, stops, **options)
        assert result.ids == ids
        assert result.stopped == (ids[-1] in stops)
        assert result.log_probability == pytest.approx(log_probability(oracle, prompt, ids), rel=1e-4, abs=1e-4)
    if stops and "min_new_tokens" not in options:
        assert len({len(result.ids) for (result,) in ours}) > 1


BEAMS = [({}, False), ({"length_penalty": 3.0}, False), ({"beams": 7}, False), ({"length_penalty": 0.0}, True)]
BEAMS += [({"length_penalty": -2.0}, True), ({"early_stopping": True}, True), ({"repetition_penalty": 1.5}, True)]
BEAMS += [({"presence_penalty": -0.3, "frequency_penalty": 0.5}, True)]
BEAMS += [({"min_new_tokens": 8}, True), ({"beams": 1}, True)]


@pytest.mark.parametrize("options, with_stops", BEAMS)
def test_beams(case, options, with_stops):
    oracle, engine = case
    options = dict(options)
    beams, full = options.pop("beams", 4), options.pop("early_stopping", False)
    best = oracle_generate(oracle, PROMPTS[0], num_beams=4)[0][0]
    stops, prompts = [best[3], best[6]] if with_stops else [], PROMPTS[:3]
    own = dict(stop_ids=stops, beams=beams, return_sequences=beams, stop_when_full=full)
    for prompt, results in zip(prompts, engine.generate(prompts, "beams", **own, **options), strict=True):
        if beams == 1:  # transformers has no beam search of one beam
            check_single_beam(oracle, prompt, results, stops)
            continue
        theirs = options | dict(num_beams=beams, num_return_sequences=beams, early_stopping=full)
        rows, scores = oracle_generate(oracle, prompt, stops, **theirs)
        assert [r.ids for r in results] == rows
        assert [r.score for r in results] == pytest.approx(scores.tolist(), rel=1e-4)
        for result in results:
            expected = log_probability(oracle, prompt, result.ids)
            assert result.log_probability == pytest.approx(expected, rel=1e-4, abs=1e-4)


def check_single_beam(oracle, prompt, results, stops):
    ((ids,), _) = oracle_generate(oracle, prompt, stops)
    assert results[0].ids == ids
    assert results[0].score == pytest.approx(log_probability(oracle, prompt, ids) / len(ids), rel=1e-4)


FILTERS = [{}, {"temperature": 0.4}, {"temperature": 2.5}, {"top_k": 1}, {"top_k": 9}, {"top_k": VOCAB + 5}]
FILTERS += [{"top_p": 0.1}, {"top_p": 0.7}, {"top_p": 0.999}, {"repetition_penalty": 2.0}]
FILTERS += [{"temperature": 1.7, "top_k": 20, "top_p": 0.8, "repetition_penalty": 1.3}]


def oracle_probabilities(logits, prompt, temperature=1.0, top_k=0, top_p=1.0, repetition_penalty=1.0):
    """transformers' processors in the order of generate()."""
    steps = []
    if repetition_penalty != 1:
        steps.append(logits_process.RepetitionPenaltyLogitsProcessor(repetition_penalty))
    if temperature != 1:
        steps.append(logits_process.TemperatureLogitsWarper(temperature))
    if top_k > 0:
        steps.append(logits_process.TopKLogitsWarper(top_k))
    if top_p < 1:
        steps.append(logits_process.TopPLogitsWarper(top_p))
    scores = torch.tensor(logits)[None]
    for step in steps:
        scores = step(torch.tensor(np.asarray(prompt))[None].long(), scores)
    return scores.double().softmax(-1)[0].numpy()


@pytest.mark.parametrize("options", FILTERS)
def test_filters(case, options):
    _, engine = case
    for prompt in PROMPTS:
        expected = oracle_probabilities(engine.vocabulary_logits([prompt], [len(prompt) - 1])[0], prompt, **options)
        ours = engine.next_probabilities(prompt, **options)
        assert np.array_equal(ours > 0, expected > 0)
        assert np.abs(ours - expected).max() <= 1e-6


def test_top_k_keeps_ties(tmp_path):
    """Logits that are all equal: transformers keeps every token that equals the k-th."""
    oracle = make_causal("Bert", tmp_path)
    with torch.no_grad():
        for name, parameter in oracle.named_parameters():
            if "predictions.transform.LayerNorm" in name or name == "cls.predictions.bias":
                parameter.zero_()
        oracle.cls.predictions.bias[:5] = 1.0
    oracle.save_pretrained(tmp_path)
    assert np.count_nonzero(CausalEngine(tmp_path).next_probabilities(PROMPTS[1], top_k=3)) == 5


FILTERED = {"temperature": 0.7, "top_k": 30, "top_p": 0.9, "repetition_penalty": 1.2}


@pytest.mark.parametrize("options, seed", [({}, 2**63 + 11), (FILTERED, 7)])
def test_draws(case, options, seed):
    """Each token is the one that the documented generator draws from the filtered distribution."""
    _, engine = case
    prompt = PROMPTS[1].tolist()
    (results,) = engine.generate([prompt], "sample", return_sequences=3, seed=seed, **options)
    assert len({tuple(result.ids) for result in results}) == 3
    for number, result in enumerate(results):
        random = MersenneTwister64(seed_sequence([seed & 0xFFFFFFFF, seed >> 32, number], 624))
        tokens = list(prompt)
        for token in result.ids:
            logits = engine.vocabulary_logits([tokens], [len(tokens) - 1])[0]
            sums = np.cumsum(oracle_probabilities(logits, tokens, **options))
            u = (random.draw() >> 11) / 2.0**53
            assert token == int(np.searchsorted(sums, u, side="right")) or np.abs(sums - u).min() < 1e-6
            tokens.append(token)


@pytest.mark.parametrize("search", ["greedy", "sample", "beams"])
def test_the_batch_and_the_threads_change_nothing(case, search):
    _, engine = case
    check_batches_and_threads(engine, PROMPTS, search)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top_p": 1.5}, "top_p must be above 0 and at most 1, got 1.5"),
        ({"top_p": float("nan")}, "top_p must be above 0 and at most 1, got nan"),
        ({"temperature": -1.0}, "temperature must be above 0, got -1"),
        ({"top_k": -1}, "top_k must be at least 0, got -1"),
        ({"repetition_penalty": -1.0}, "repetition_penalty must be above 0, got -1"),
        ({"min_new_tokens": 9, "max_new_tokens": 8}, "min_new_tokens must be in 0..8, got 9"),
        ({"stop_ids": [VOCAB]}, "stop_ids must be in 0..60, got 61"),
        ({"return_sequences": 2}, "return_sequences must be in 1..1, got 2"),
        ({"search": "beams", "beams": 2, "return_sequences": 3}, "return_sequences must be in 1..2, got 3"),
        ({"search": "beams", "beams": 31}, "2 candidates for each beam must be at most the 61 tokens"),
        ({"batch": -1}, "batch must be at least 1, got -1"),
    ],
)
def test_options_out_of_range(case, options, message):
    _, engine = case
    with pytest.raises(EngineError, match=r"\[generate\] " + message.replace(".", r"\.")):
        engine.generate(PROMPTS, **options)


NEAR_ZERO = [{"temperature": 1e-37}, {"temperature": 1e-45, "top_k": 5}, {"temperature": 5e-324, "top_p": 0.5}]


@pytest.mark.parametrize("options", NEAR_ZERO)
def test_temperatures_near_zero(case, options):
    """The limit: all probability is that of the most probable token."""
    _, engine = case
    for prompt in PROMPTS:
        logits = engine.vocabulary_logits([prompt], [len(prompt) - 1])[0]
        assert np.array_equal(engine.next_probabilities(prompt, **options), np.arange(VOCAB) == logits.argmax())
    greedy = engine.generate(PROMPTS)
    assert engine.generate(PROMPTS, "sample", seed=5, **options) == greedy


def test_temperatures_of_any_size(case):
    """The softmax in float64, of which stop ids that may not come yet are left out."""
    _, engine = case
    for prompt, temperature in zip(PROMPTS, (1e37, 1e40, 1e300), strict=False):
        logits = engine.vocabulary_logits([prompt], [len(prompt) - 1])[0].astype(np.float64)
        logits[[3, 7]] = -np.inf
        ours = engine.next_probabilities(prompt, temperature=temperature, stop_ids=[3, 7], min_new_tokens=2)
        assert np.abs(ours - torch.from_numpy(logits / temperature).softmax(-1).numpy()).max() <= 1e-6


def test_penalties_of_any_size(case):
    """What leaves scores finite is computed as transformers does it; the rest is refused."""
    _, engine = case
    prompt = PROMPTS[1]
    logits = engine.vocabulary_logits([prompt], [len(prompt) - 1])[0]
    for penalty in (1e-6, 1e-3, 1e3, 1e6):
        expected = oracle_probabilities(logits, prompt, repetition_penalty=penalty)
        assert np.abs(engine.next_probabilities(prompt, repetition_penalty=penalty) - expected).max() <= 1e-6
    for penalty in (1e-300, 1e-45, 1e300):
        rule = r"\[generate\] repetition_penalty must keep scores within float32, got 1e[-+]\d+ with a score of "
        with pytest.raises(EngineError, match=rule):
            engine.next_probabilities(prompt, repetition_penalty=penalty)
    for penalty in (1e300, -1e300):
        with pytest.raises(EngineError, match=r"length_penalty must keep tokens\^length_penalty within float32"):
            engine.generate(PROMPTS, "beams", beams=2, length_penalty=penalty)


def test_logits_beyond_float32(tmp_path):
    oracle = make_causal("Bert", tmp_path, max_position_embeddings=POSITIONS)
    with torch.no_grad():
        oracle.cls.predictions.transform.LayerNorm.weight.fill_(3e38)
    oracle.save_pretrained(tmp_path)
    engine = CausalEngine(tmp_path)
    message = r"\[generate\] logits must be finite in float32, got -?(inf|nan) for token \d+: numbers in the model"
    for search in ("greedy", "sample", "beams"):
        with pytest.raises(EngineError, match=message):
            engine.generate(PROMPTS, search, beams=2)
    with pytest.raises(EngineError, match=message):
        engine.next_probabilities(PROMPTS[0])


def test_bad_prompts(case):
    oracle, engine = case
    with pytest.raises(EngineError, match="a prompt must have at least one token, got none"):
        engine.generate([[1, 2], []])
    with pytest.raises(EngineError, match=r"token ids must be in 0\.\.60, got 61 at token 1"):
        engine.generate([[1, VOCAB]])
    long = [1] * 30
    if oracle.config.model_type == "bert":
        engine.generate([long], max_new_tokens=19)  # the last token needs no position
        with pytest.raises(EngineError, match=r"must fit into the model's positions, got 30 and 20: .*48"):
            engine.generate([long], max_new_tokens=20)


@pytest.mark.parametrize(
    ("head", "changes", "message"),
    [
        ("ForMaskedLM", {}, "must be a causal language model, .*, got RoFormerForMaskedLM"),
        ("Model", {"is_decoder": True}, "must be a causal language model, .*, got RoFormerModel"),
        ("ForCausalLM", {"is_decoder": False}, r"must attend to earlier tokens only \(is_decoder\), got a bidirect"),
    ],
)
def test_other_models(head, changes, message, tmp_path):
    make_oracle("RoFormer", head, **changes).save_pretrained(tmp_path)
    with pytest.raises(EngineError, match=message):
        CausalEngine(tmp_path).generate(PROMPTS)
