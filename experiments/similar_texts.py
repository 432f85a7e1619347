"""X-21: does a RoFormer that is trained on pairs of similar texts, as RoFormer-Sim is, order other pairs by their
similarity better than the RoFormer that it started from? No model is trained on labelled pairs of the Chinese STS-B;
its dev part chooses the rate, and which vector of the plain model is read.

The pairs are questions that people have judged to ask the same. The body is pretrained without labels on the sentences
of the same sets, and of sets for natural language inference, whose sentences resemble STS-B's more. Cosines of token
counts show how much the words alone say.
"""

from .language_models import design, masked_run, settings_of, train
from .rate_search import rows_of_search, search_rate
from .run import Experiment, identity_of, row, seeds_of
from .sentence_vectors import COUNTS, correlation_of_cosines
from .tuned_models import read_table

SIM, PLAIN = "RoFormer-Sim", "RoFormer"
TEST, DEV = "Chinese STS-B test, Spearman's correlation", "Chinese STS-B dev, Spearman's correlation"


def settings(scale):
    tiny = scale == "tiny"

    def sets(*names):
        return [f"zh_pairs/{name}.tsv" for name in names]

    pairs = sets("afqmc_train") if tiny else sets("afqmc_train", "atec_train", "lcqmc_dev", "oppo_dev")
    more = [] if tiny else sets("ocnli_train10k", "cmnli_dev", "snli_zh_dev", "snli_zh_test")
    corpus = {"name": "zh-sentences", "files": pairs + more, "tokens": 6000, "valid_fraction": 0.25 if tiny else 0.02}
    run = masked_run("tiny" if tiny else "small", 2000)
    found = settings_of(design("zh-sentences", corpus | {"field": "sentence1"}, seeds_of(scale), ["rope"], run))
    valid, test = sets("stsb_zh_dev", "stsb_zh_test")
    return found | {
        "files": [*found["files"], valid, test],
        "pairs": pairs,  # pairs with the label 1 are trained on
        "valid": valid,
        "test": test,
        "epochs": 1 if tiny else 3,
        "training": {"batch": 8 if tiny else 48, "max_length": 64, "schedule": "linear", "warmup": 0.1},
        # Of runs of one epoch.
        "search": {"rates": [3e-4] if tiny else [1e-4, 3e-4, 1e-3], "seed": 1000, "beyond": 2, "lower": 0},
    }


def run(context, settings):
    parts = {DEV: judged_pairs(context.data / settings["valid"]), TEST: judged_pairs(context.data / settings["test"])}
    bodies, rates = train(context, settings["designs"]["zh-sentences"])
    yield from rates

    def on(part, model, vector):
        return correlation_of_cosines(model, vector, parts[part], settings["training"]["max_length"], context.threads)

    def short(rate):
        context.note(f"similar texts: one epoch at the rate {rate:g}")
        directory = context.path("runs", "similar-texts-rates", f"{rate:g}")
        _train(context, settings, bodies[0], directory, rate, 1, settings["search"]["seed"])
        return -on(DEV, directory, "pooler")

    chosen, *tried = search_rate(settings["search"], short)
    yield from rows_of_search(SIM, *tried)
    for body in bodies:
        context.note(f"similar texts, seed {body.seed}")
        directory = context.path("runs", "similar-texts", f"seed-{body.seed}")
        made = _train(context, settings, body, directory, chosen, settings["epochs"], body.seed)
        plain = max(("mean", "cls"), key=lambda vector: on(DEV, body.directory, vector))
        sides = [(SIM, directory, "pooler", made), (PLAIN, body.directory, plain, body.record)]
        for arm, model, vector, record in [*sides, ("counts of tokens", body.directory, COUNTS, body.record)]:
            for part in parts:
                yield row(part, arm, on(part, model, vector), seed=body.seed, task=vector, made=record)


def judged_pairs(path):
    return [(each["sentence1"], each["sentence2"], float(each["label"])) for each in read_table(path)]


def _train(context, settings, body, directory, rate, epochs, seed):
    """The record of a RoFormer-Sim, which is trained unless it is there."""
    options = settings["training"] | {"learning_rate": rate, "epochs": epochs, "seed": seed}
    made_of = options | {"pairs": identity_of(context.data, settings["pairs"])}
    with context.recorded(directory, made_of | {"body": identity_of(body.directory, ["model.safetensors"])}) as record:
        if not record["finished"]:
            pairs = [context.data / file for file in settings["pairs"]]
            columns = ["text=sentence1", "pair=sentence2", "label=label"]
            how = {"pairs": pairs, "columns": columns, "label": "1", "no_quotes": True}
            context.roformer("train-similar", model=body.directory, output=directory, **how, **options)
    return record


EXPERIMENTS = [
    Experiment(
        "similar-texts",
        "Does training on pairs of similar texts make vectors that order other pairs?",
        run,
        settings,
        hours=0.9,
        exceptions=(
            "at scale paper the same as at small: the published model was trained on pairs that are not public",
        ),
    )
]
