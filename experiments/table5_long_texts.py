"""X-08 (C-16, C-22; the paper's Table 5, R-TAB-5): which of two judgments is like a third, by the first 128 or 256
tokens of each. BERT's tokens are characters, WoBERT's and RoFormer's are words; the learned tables of the first two end
at 128. Training triples are two judgments of one cause of action and one of another cause, and triples of CAIL2019-SCM
whose documents are in no other part. Models are tested on triples of other judgments, and on SCM triples of other
documents.

A text becomes one vector, the mean of its last hidden states, and the greater cosine wins. Small models that read two
texts in one sequence, as the paper's, did not learn to compare them: they stayed at 0.51.
"""

from collections import defaultdict

import numpy as np

from . import corpus
from .judge import SHORT_RUN
from .language_models import pretrained
from .run import Experiment, identity_of, row
from .table3_chinese_models import MODELS, corpus_of, run_file
from .tuned_models import DICTIONARY, bag_of_words, made_files, read_lines, read_table

DOCUMENTS, SCM_DOCUMENTS = "cjrc_legal_docs/cjrc_docs.jsonl", "cail2019_scm/docs.jsonl"
SCM_TRIPLES = "cail2019_scm/triples.tsv"
TASK = {"name": "triples", "task": "triples", "metric": "accuracy"}
TRIPLES, ON_SCM = "triples, accuracy", "SCM, accuracy"
BY_LENGTH = "triples, accuracy by the tokens that are read"
SCALE = 20.0  # of cosines before the softmax, as sentence-transformers has it


def settings(scale):
    """Scale paper: R-CFG-5's bodies and R-CFG-6's lengths."""
    tiny, is_paper = scale == "tiny", scale == "paper"
    shorter = 512 if is_paper else 128
    corpora = {tokens: corpus_of(scale, tokens) for tokens in ("characters", "words")}
    files = [file for each in corpora.values() for file in corpus.files_of(each)]
    return {
        "files": [*dict.fromkeys(files), DOCUMENTS, SCM_DOCUMENTS, SCM_TRIPLES],
        "seeds": [1] if tiny else [1, 2, 3, 4, 5],
        "corpora": corpora,
        "models": {name: _body(scale, name, shorter) for name in ("BERT", "WoBERT", "RoFormer")},
        "arms": [["BERT", shorter], ["WoBERT", shorter], ["RoFormer", shorter], ["RoFormer", 2 * shorter]],
        "triples": {"train": 64, "valid": 16, "test": 64} if tiny else {"train": 2000, "valid": 300, "test": 1000},
        "tuning": {"rates": [3e-4] if tiny else [3e-4, 1e-3, 3e-3], "batch": 16, "epochs": 2, "epochs_to_choose": 1},
        "read_at": [128, 256, 512] + ([1024] if is_paper else []),
    }


def _body(scale, name, shorter):
    """All bodies see as many tokens; RoFormer's stages also have the greater length."""
    tokens, family, encoding = MODELS[name]
    run = run_file(scale, family, encoding)
    steps, batch = {"tiny": (8, 8), "small": (400, 64), "paper": (100000, 64)}[scale]
    stages = [(shorter, steps, batch)]
    if name == "RoFormer":
        stages = [(shorter, steps // 2, batch), (2 * shorter, steps // 4, batch // 2), (shorter, steps // 4, batch)]
        run["model"]["max_position_embeddings"] = 2 * shorter
    run["stages"] = [{"max_length": length, "batch": rows, "steps": of_stage} for length, of_stage, rows in stages]
    run["schedule"]["warmup_steps"] = min(run["schedule"]["warmup_steps"], steps // 4)
    return {"tokens": tokens, "run": run}


def run(context, settings):
    data = {tokens: corpus.prepared(context, each) for tokens, each in settings["corpora"].items()}
    how = {"triples": settings["triples"], "valid": "every fifth pair of a cause"}
    all_files = [DOCUMENTS, SCM_DOCUMENTS, SCM_TRIPLES]
    files = made_files(context, "triples", how, all_files, lambda: records_of(context.data, settings["triples"]))
    scm = made_files(
        context, "scm", "test", all_files[1:], lambda: {"train": [], "test": scm_triples(context.data, "test")}
    )
    rates = {}
    for seed in settings["seeds"]:
        bodies = {
            name: pretrained(context, ("long-texts", name), model["run"], data[model["tokens"]], seed)
            for name, model in settings["models"].items()
        }
        for name, length in settings["arms"]:
            arm, tokens = f"{name} at {length}", settings["models"][name]["tokens"]
            dictionary = context.data / DICTIONARY if tokens == "words" else None

            def tune(rate, chooses=False, name=name, length=length, seed=seed, dictionary=dictionary, body=bodies):
                reads = settings["read_at"] if [name, length] == settings["arms"][-1] and not chooses else []
                given = settings["tuning"]
                tuning = {"rate": rate, "seed": seed, "length": length, "batch": given["batch"]}
                tuning["epochs"] = given["epochs_to_choose" if chooses else "epochs"]
                folder = context.path("runs", "long-texts", "tuned", f"{name}-{length}")
                output = folder / f"seed-{seed}{f'-rate-{rate:g}' if chooses else ''}"
                return _tuned(context, body[name].directory, output, tuning, files, scm, reads, dictionary)

            if arm not in rates:
                short = {rate: tune(rate, chooses=True)[0]["valid"] for rate in settings["tuning"]["rates"]}
                rates[arm] = max(short, key=short.get)
                for rate, accuracy in short.items():
                    yield row(SHORT_RUN, f"{arm} on triples", -accuracy, learning_rate=rate)
            found, record = tune(rates[arm])
            about = {"seed": seed, "task": TASK["name"], "learning_rate": rates[arm], "made": record}
            yield row(TRIPLES, arm, found["test"], **about)
            yield row(f"{TRIPLES} on valid records", arm, found["valid"], **about)
            yield row(ON_SCM, arm, found["scm"], seed=seed, made=record)
            for read_at, accuracy in found["by length"].items():
                yield row(BY_LENGTH, arm, accuracy, seed=seed, step=int(read_at), made=record)
            words = bag_of_words(TASK, files, bodies[name].directory, length, dictionary)
            yield row(TRIPLES, f"{arm}, bag of words", words, seed=seed, task=TASK["name"])


def _tuned(context, body, output, tuning, files, scm, read_at, dictionary):
    """The accuracies of a model that is tuned on the training triples, and the record of the work."""
    identity = {"files": identity_of("", files.values()), "body": identity_of(body, ["model.safetensors"])}
    made_of = {"tuning": tuning, "read_at": read_at} | identity

    def make():
        context.note(f"triples, {output.parent.name}, seed {tuning['seed']}, rate {tuning['rate']:g}")
        model = Comparer(body, dictionary, context.threads)
        model.train(read_lines(files["train"]), tuning)
        found = {split: model.accuracy(read_lines(files[split]), tuning["length"]) for split in ("valid", "test")}
        found["scm"] = model.accuracy(read_lines(scm["test"]), tuning["length"])
        asked = read_lines(files["test"])
        return found | {"by length": {str(length): model.accuracy(asked, length) for length in read_at}}

    with context.recorded(output, made_of) as record:
        found = context.kept(f"{output}.json", made_of, make)
    return found, context.record(output) or record


class Comparer:
    """A body whose text vectors are trained: the anchor's cosine with its positive against its cosines with all other
    texts of a batch, as MultipleNegativesRankingLoss of sentence-transformers."""

    def __init__(self, body, dictionary, threads):
        import torch

        import roformer_cpp

        if threads is not None:
            torch.set_num_threads(threads)
        self.torch, self.model = torch, roformer_cpp.load_model(body)
        self.tokenizer = roformer_cpp.Tokenizer(body, dictionary=dictionary)

    def train(self, triples, tuning):
        torch, parameters = self.torch, list(self.model.parameters())
        torch.manual_seed(tuning["seed"])
        random, batch = np.random.default_rng(tuning["seed"]), tuning["batch"]
        optimizer = torch.optim.AdamW(parameters, lr=tuning["rate"], weight_decay=0.01)
        order = np.concatenate([random.permutation(len(triples)) for _ in range(tuning["epochs"])])
        steps = len(order) // batch
        warmup = max(steps // 10, 1)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: min((step + 1) / warmup, 1) * (1 - step / steps)
        )
        self.model.train()
        for step in range(steps):
            of_step = [triples[i] for i in order[step * batch : (step + 1) * batch]]
            negative = {"B": "C", "C": "B"}
            texts = [each["A"] for each in of_step] + [each[each["label"]] for each in of_step]
            texts += [each[negative[each["label"]]] for each in of_step]
            anchors_BC, others_NC = self.vectors(texts, tuning["length"]).tensor_split([batch])
            loss = torch.nn.functional.cross_entropy(SCALE * anchors_BC @ others_NC.T, torch.arange(batch))
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            schedule.step()
        self.model.eval()

    def vectors(self, texts, length):
        """Of unit length, [N, C]."""
        torch = self.torch
        rows = [torch.tensor(ids) for ids in self.tokenizer(texts, truncation=True, max_length=length)["input_ids"]]
        ids_NT = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        mask_NT = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
        hidden_NTC = self.model.encode(ids_NT, mask_NT)
        return torch.nn.functional.normalize((hidden_NTC * mask_NT[:, :, None]).sum(1), dim=-1)

    def accuracy(self, triples, length):
        """Equal cosines are B's, as in the bag of words."""
        torch, texts = self.torch, list(dict.fromkeys(each[name] for each in triples for name in "ABC"))
        with torch.no_grad():
            vectors = [self.vectors(texts[i : i + 32], length) for i in range(0, len(texts), 32)]
        of_text = dict(zip(texts, torch.cat(vectors), strict=True))
        a, b, c = (torch.stack([of_text[each[name]] for each in triples]) for name in "ABC")
        says_b = ((a * b).sum(1) >= (a * c).sum(1)).tolist()
        return float(np.mean([(each["label"] == "B") == said for each, said in zip(triples, says_b, strict=True)]))


def records_of(data, counts):
    parts = read_rulings(data)
    found = {
        split: same_cause_triples(parts[split], counts[split], seed)
        for seed, split in enumerate(("train", "valid", "test"), 1)
    }
    found["train"] += scm_triples(data, "train")
    return found


def read_rulings(data):
    """{split: judgments}. Within each cause of the training part, every fifth pair of judgments is for choosing the
    learning rate: a pair, because a single judgment would lack a similar one. A text in several parts stays in only
    one: test before valid before train."""
    parts, seen = {"train": [], "valid": [], "test": []}, defaultdict(int)
    for ruling in read_lines(data / DOCUMENTS):
        split = "test"
        if ruling["split"] != "test":
            pair = seen[ruling["domain"], ruling["cause"]] // 2
            seen[ruling["domain"], ruling["cause"]] += 1
            split = "valid" if pair % 5 == 2 else "train"
        parts[split].append(ruling)
    for own, other in (("valid", "test"), ("train", "test"), ("train", "valid")):
        texts = {ruling["text"] for ruling in parts[other]}
        parts[own] = [ruling for ruling in parts[own] if ruling["text"] not in texts]
    return parts


def same_cause_triples(documents, count, seed):
    """Triples: A, a document; one of its cause; and one of the same domain with another cause; in an order that is
    drawn."""
    random, by_cause, by_domain = np.random.default_rng(seed), defaultdict(list), defaultdict(list)
    for each in documents:
        by_cause[each["domain"], each["cause"]].append(each)
        by_domain[each["domain"]].append(each)
    anchors = [each for each in documents if len(by_cause[each["domain"], each["cause"]]) > 1]
    triples = []

    def one_of(list_of):
        return list_of[random.integers(len(list_of))]

    for _ in range(100 * count if anchors else 0):  # a draw without a matching document is repeated
        if len(triples) == count:
            break
        a = one_of(anchors)
        alike, other, label = one_of(by_cause[a["domain"], a["cause"]]), one_of(by_domain[a["domain"]]), one_of("BC")
        if alike is not a and other["cause"] != a["cause"]:
            sides = {label: alike["text"], "C" if label == "B" else "B": other["text"]}
            triples.append({"A": a["text"], "B": sides["B"], "C": sides["C"], "label": label})
    return triples


def scm_triples(data, side):
    """SCM's triples with all documents on that side of a split of the documents."""
    texts = {str(each["doc"]): each["text"] for each in read_lines(data / SCM_DOCUMENTS)}
    rows = [each for each in read_table(data / SCM_TRIPLES) if each["doc_side"] == side]
    return [{name: texts[each[name]] for name in "ABC"} | {"label": each["label"]} for each in rows]


EXPERIMENTS = [
    Experiment(
        "long-texts",
        "Does RoFormer gain by reading more of long texts? (Table 5)",
        run,
        settings,
        hours=1.5,
        exceptions=(
            "triples of judgments, and those of CAIL2019-SCM on one side of a split of its documents, where the paper "
            "has 8,964 triples in parts of 6 to 2 to 2",
            "each text is read alone, and the greater cosine wins, where the paper reads pairs",
            "bodies pretrained on --data from random weights",
        ),
    )
]
