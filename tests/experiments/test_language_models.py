"""The comparisons of language models: curves and rates on made-up losses, and a comparison from end to end."""

import json
import math
import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import roformer_cpp
from cli_support import needs_program
from experiment_sets import check_rules, write_lines
from experiments import (
    corpus,
    encoding_arms,
    figure3_performer,
    language_models,
    layer_parts,
    rate_search,
    recorded,
    run,
    trained_scores,
)


def line(begin, end):
    return list(range(10, 301, 10)), [begin + (end - begin) * i / 30 for i in range(1, 31)]


def test_the_late_mean_leaves_the_first_third_out():
    steps, losses = line(2, 2)
    losses[:10] = [100] * 10  # steps 10 to 100 of 300
    assert language_models.late_mean(steps, losses) == 2
    losses[10] = 22
    assert language_models.late_mean(steps, losses) == 3


def test_steps_to_the_loss_that_both_reach():
    ratio, slow, flat = language_models.steps_ratio, line(8, 5), line(5.1, 5.1)  # slow ends at 5.2, mean of five
    assert ratio(flat, slow) == pytest.approx(50 / 300) and ratio(slow, flat) == pytest.approx(300 / 50)
    assert ratio(slow, slow) == 1
    # 9 to 6 ends at 6.2, which 8 to 5 has in the mean of steps 160 to 200.
    assert ratio(line(9, 6), slow) == pytest.approx(300 / 200)
    lucky = line(8, 5)
    lucky[1][9] = -100  # one low loss far from the end
    assert ratio(lucky, slow) == 1


def test_curves_keep_200_points_and_the_last():
    assert language_models.thinned(list(range(1000))) == list(range(4, 1000, 5))
    assert language_models.thinned(list(range(200))) == list(range(200)) and language_models.thinned([]) == []


@pytest.mark.parametrize(
    ("short", "whole", "lower", "chosen", "order"),
    [
        ({3e-4: 3, 1e-3: 1, 3e-3: 2}, {}, 0, 1e-3, []),
        ({3e-4: 3, 1e-3: 1, 3e-3: 2}, {1e-3: 1, 3e-4: 1.1}, 3, 1e-3, [1e-3, 3e-4]),
        # 3e-3 is the highest, so one more is tried; a whole run that diverged is worse than any.
        (
            {3e-4: 3, 1e-3: 2, 3e-3: 1, 1e-2: 1.5},
            {3e-3: math.inf, 1e-3: 2, 3e-4: 1.5, 9e-5: 1.6},
            3,
            3e-4,
            [3e-3, 1e-3, 3e-4, 9e-5],
        ),
        # 3e-3 is not told from the best, 1e-3; the way down counts no rate above 1e-3.
        ({3e-4: 3, 1e-3: 2, 3e-3: 2.04}, {3e-3: 1, 1e-3: 1.5}, 3, 3e-3, [3e-3, 1e-3]),
        ({3e-4: 3, 1e-3: 2, 3e-3: 2.04}, {3e-3: 1.5, 1e-3: 1, 3e-4: 1.2}, 1, 1e-3, [3e-3, 1e-3, 3e-4]),
        ({3e-4: 3, 1e-3: 1, 3e-3: 2}, {1e-3: 1, 3e-4: 0.9}, 1, 3e-4, [1e-3, 3e-4]),
        ({3e-4: 3, 1e-3: 1, 3e-3: 2}, {1e-3: math.inf, 3e-4: math.inf}, 1, 3e-4, [1e-3, 3e-4]),
    ],
)
def test_rates_are_searched_for(short, whole, lower, chosen, order):
    """`order`: of the whole runs. Rates without a loss must not be tried."""
    tried = []

    def loss_of(losses, rate):
        return next(loss for known, loss in losses.items() if math.isclose(rate, known))

    def whole_run(rate):
        tried.append(rate)
        return loss_of(whole, rate)

    given = {"rates": [3e-4, 1e-3, 3e-3], "beyond": 2, "lower": lower, "tie": 0.05}
    found, short_losses, _ = rate_search.search_rate(given, lambda rate: loss_of(short, rate), whole_run)
    assert len(short_losses) == len(short)
    assert found == pytest.approx(chosen) and tried == pytest.approx(order)


DESIGNS = ["convergence", "word-position", "trained-scores", "trained-frequencies", "encodings", "extrapolation"]
DESIGNS += ["linear-language-model", "atlas", "staged-pretraining", "synthetic", "pairwise", "random-features"]


@pytest.mark.parametrize("name", DESIGNS)
def test_designs_are_those_of_the_recorded_results(name):
    """But for encodings that were added to the table since."""
    (path,) = recorded.RESULTS.glob(f"[as]*/{name}.parquet")
    before, now = run.read_about(path)["settings"], run.experiments()[name][0].settings_at("small")
    for key in {"designs", "arms", "encodings"} & now.keys():
        now[key] = {name: each for name, each in now[key].items() if name in before[key]}
    assert now == before


def test_options_of_arms():
    found = encoding_arms.parse_arm('mrope:rope_parameters={"mrope_section":[6,5,5]}:x=1')
    assert found == ("mrope", {"rope_parameters": {"mrope_section": [6, 5, 5]}, "x": 1})


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("data"), random.Random(7)
    words = ["".join(rng.choices("etaoinshr", k=rng.randint(1, 6))) for _ in range(200)]
    (folder / "enwiki_xml").mkdir()
    text = "\n\n".join(" ".join(rng.choices(words, k=600)) for _ in range(40))
    (folder / "enwiki_xml" / "enwiki_head.xml").write_text(text)
    books = [{"text": " ".join(rng.choices(words, k=6000))} for _ in range(8)]
    write_lines(folder / "en_books" / "books_valid.jsonl", books)
    return folder


def small(settings):
    """Settings with smaller bodies, fewer steps, and one rate that is tried."""
    for design in settings["designs"].values():
        design["run"]["model"] |= {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2}
        for stage in design["run"]["stages"]:
            stage["steps"] = 4
        if design["search"]:
            design["search"] |= {"rates": [1e-3], "lower": 0}
    return settings


def test_linear_language_models_from_end_to_end(data, tmp_path):
    needs_program()
    context = run.Context(tmp_path, data, "tiny", threads=1)
    settings = small(figure3_performer.settings("tiny"))
    rows = list(figure3_performer.run(context, settings))
    values = {(row["measure"], row["arm"]): row for row in rows if row["step"] is None and row["seed"] == 1}
    for arm in ("none", "learned", "rope", "rope, softmax"):
        found = values[language_models.HELD_OUT, arm]
        folder = "linear-language-model" + ("-softmax" if arm == "rope, softmax" else "")
        directory = tmp_path / "runs" / folder / f"{found['learning_rate']:g}" / arm.split(",")[0] / "seed-1"
        assert found["value"] == json.loads((directory / "result.json").read_text())["losses"][0]
        late = [line["loss"] for line in language_models.metrics(directory, "train") if line["step"] > 4 // 3]
        assert values[language_models.LATE, arm]["value"] == pytest.approx(np.mean(late))
        assert found["commit"] and found["seconds"] > 0
    # At its start a model's queries and keys are small: the weight of a key is nearly that of two zero vectors, the
    # head's size for elu.
    assert 2 < values["smallest denominator by keys", "rope"]["value"] < 6
    # Everything is kept, the weights are not needed again, and a second process trains nothing.
    for path in tmp_path.rglob("*.safetensors"):
        path.unlink()
    context.roformer = None
    assert list(figure3_performer.run(context, settings)) == rows
    # A run of other data is refused.
    other, bytes_of = tmp_path / "data", "enwiki_xml/enwiki_head.xml"
    (other / "enwiki_xml").mkdir(parents=True)
    (other / bytes_of).write_text((data / bytes_of).read_text().replace("o", "a"))
    with pytest.raises(RuntimeError, match=r"roformer compare .* must end with code 0, got 1"):
        list(figure3_performer.run(run.Context(tmp_path, other, "tiny", threads=1), settings))


def test_performers_from_end_to_end(data, tmp_path):
    needs_program()
    settings = small(figure3_performer.settings_of_performer("tiny"))
    rows = list(figure3_performer.run_performer(run.Context(tmp_path, data, "tiny", threads=1), settings))
    check_rules("performer-language-model", rows)
    (config,) = tmp_path.glob("runs/linear-language-model-favor/0.001/rope/seed-1/config.json")
    assert json.loads(config.read_text())["attention"]["feature_map"] == "favor"


def test_held_out_rows_must_be_long_enough(monkeypatch):
    documents = [torch.arange(5), torch.arange(7)]
    found = SimpleNamespace(documents=2, document=lambda i: (documents[i], None))
    monkeypatch.setattr(roformer_cpp, "ShardDataset", lambda *_, **__: found)
    assert corpus.held_out_rows("data", 3, 3).tolist() == [[0, 1, 2], [0, 1, 2], [3, 4, 5]]
    assert corpus.held_out_rows("data", 2, 3).tolist() == [[0, 1, 2], [0, 1, 2]]
    with pytest.raises(ValueError, match=r"\[corpus\] held-out documents must have 8 tokens, got none so long in data"):
        corpus.held_out_rows("data", 1, 8)


@pytest.fixture
def position_model(monkeypatch):
    """A model with the encoding, of which the readings are taken."""

    def of(encoding):
        config = {"vocab_size": 40, "hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2}
        config |= {"num_hidden_layers": 2, "position_encoding": encoding, "max_position_embeddings": 16}
        model = roformer_cpp.build_model(config, "RfEncoderForMaskedLM", seed=1).double()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.3 * torch.randn_like(parameter)
        monkeypatch.setattr(roformer_cpp, "load_model", lambda *_, **__: model)
        monkeypatch.setattr(corpus, "held_out_rows", lambda *_: torch.arange(32).view(2, 16))
        return model

    return of


def test_the_four_terms_add_up_to_the_scores(position_model):
    """Those of the first layer, whose input is that of the embeddings: words and positions."""
    model, ids_BT = position_model("learned"), torch.arange(32).view(2, 16)
    with torch.no_grad():
        inputs_BTC = layer_parts.layer_inputs(model, ids_BT)[0]
        content, position = layer_parts.input_parts(model, ids_BT)
        sides = layer_parts.projected(model, 0, content), layer_parts.projected(model, 0, position, with_bias=False)
        terms = [query @ key.mT for query, _ in sides for _, key in sides]
        query, key = layer_parts.projected(model, 0, inputs_BTC)
        of = {key.split(".", 1)[1]: value for key, value in model.named_parameters()}
        words = of["embeddings.word_embeddings.weight"][ids_BT] + of["embeddings.token_type_embeddings.weight"][0]
        words = words + dict(model.named_parameters())["position_encoding.weight"]
        norm = [of[f"embeddings.LayerNorm.{key}"] for key in ("weight", "bias")]
        expected = torch.nn.functional.layer_norm(words, (16,), *norm, eps=model.config["layer_norm_eps"])
    assert inputs_BTC == pytest.approx(expected, rel=1e-10, abs=1e-12)
    assert sum(terms) == pytest.approx(query @ key.mT, rel=1e-9, abs=1e-10)
    spreads = [np.mean([np.std(term[:, head].numpy()) for head in range(2)]) for term in terms]
    reading = trained_scores.read_words(SimpleNamespace(directory="x"), "data", 2, 16)
    assert reading == pytest.approx(spreads, rel=1e-9)


def test_scores_by_distance(position_model):
    """Rotated by complex numbers, of the layers' inputs; means by plain loops."""
    model, ids_BT = position_model("rope"), torch.arange(32).view(2, 16)
    run_of = SimpleNamespace(directory="x", seed=1)
    reading = trained_scores.read_scores(run_of, "data", 2, 16, near=[1, 3], far=[8, 15], reach=2)
    angle = np.arange(16)[:, None] * 10000.0 ** (-np.arange(4) / 4)
    by_distance, contrasts = np.zeros((2, 16)), []
    with torch.no_grad():
        inputs = layer_parts.layer_inputs(model, ids_BT)
        for layer, x_BTC in enumerate(inputs):
            q, k = (x[..., ::2].numpy() + 1j * x[..., 1::2].numpy() for x in layer_parts.projected(model, layer, x_BTC))
            q, k = q * np.exp(1j * angle), k * np.exp(1j * angle)
            scores = np.einsum("bhmi,bhni->bhmn", q, k.conj()).real / math.sqrt(8)
            distance = np.abs(np.subtract.outer(np.arange(16), np.arange(16)))
            by_distance[layer] = [scores[:, :, distance == r].mean() for r in range(16)]
            for head in range(2):
                of_head = scores[:, head]
                near, far = (of_head[:, (distance >= a) & (distance <= b)].mean() for a, b in ((1, 3), (8, 15)))
                contrasts.append((near - far) / of_head.std())
            if layer == 0:
                weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
                expected = [weights[:, 1].diagonal(offset, 1, 2).mean() for offset in range(-2, 3)]
                assert reading["attention"]["layer 1, head 2"] == pytest.approx(expected, rel=1e-9)
    assert reading["mean by distance"] == pytest.approx(by_distance.mean(0), rel=1e-9)
    assert reading["near less far"] == pytest.approx(np.mean(contrasts), rel=1e-9)
    assert reading["permuted"] != pytest.approx(reading["near less far"])
