"""X-07 (C-21, the paper's Table 4, R-TAB-4): one model trained on Chinese laws in stages of several lengths, with words
as tokens and whole words masked; after each stage the same held-out documents are measured at each length, in separate
rows, as in the table.

The claim is decided by the model at the end, on masked tokens that are the same at every length and differ in their
context alone: a shorter row is the middle of the longest one, with the same masks, between [CLS] and [SEP], and
accuracy is that of the masked tokens which the shortest row has. Rows begin at every place of a held-out document that
puts the next of its tokens into the shortest row.
"""

from . import corpus
from .language_models import metrics, pretrained, rows_of_body
from .run import Experiment, row, seeds_of
from .table3_chinese_models import MODELS, corpus_of, run_file

SAME_TOKENS = "accuracy of the same masked tokens, fraction"
LESS_FREQUENCIES = "loss of the same masked tokens less that of token frequencies, nats"
# Stages as (max_length, batch, steps): Table 4; a quarter of its lengths and a two-hundredth of its steps (tiny has a
# fiftieth of the small steps).
PUBLISHED = [(512, 256, 200000), (1536, 256, 12500), (256, 256, 120000), (128, 512, 80000)]
PUBLISHED += [(1536, 256, 10000), (512, 512, 30000)]
SMALL = [(128, 64, 1000), (384, 21, 62), (64, 128, 600), (32, 256, 400), (384, 21, 50), (128, 64, 150)]


def settings(scale):
    published = scale == "paper"
    tokens, family, encoding = MODELS["RoFormer"]
    run, laws = run_file(scale, family, encoding), corpus_of(scale, tokens)
    run["stages"] = [
        {"max_length": length, "batch": batch, "steps": steps // 50 if scale == "tiny" else steps}
        for length, batch, steps in (PUBLISHED if published else SMALL)
    ]
    if published:
        run["schedule"]["warmup_steps"] = 20000
    lengths = [128, 256, 512, 1536] if published else [32, 64, 128, 384]
    run["model"]["max_position_embeddings"] = lengths[-1]
    run["evaluate_lengths"] = lengths
    reading = {"lengths": lengths, "rows": 8 if scale == "tiny" else 8000, "mask_probability": 0.15, "mask_seed": 1}
    return {"seeds": seeds_of(scale), "corpus": laws, "files": corpus.files_of(laws), "run": run, "reading": reading}


def run(context, settings):
    data, reading = corpus.prepared(context, settings["corpus"]), settings["reading"]

    def trained(seed):
        body = pretrained(context, ("staged-pretraining",), settings["run"], data, int(seed))
        read = context.kept(
            f"{body.directory}.contexts.json", reading, lambda: read_contexts(body.directory, data, **reading)
        )
        return body, read

    runs = context.share("staged-pretraining", [str(seed) for seed in settings["seeds"]], trained)
    for body, read in runs.values():
        yield from rows_of_body("rope", body)
        about = {"seed": body.seed, "made": body.record}
        for line in metrics(body.directory, "length"):
            for measure in ("loss", "accuracy"):
                task, arm = f"after stage {line['stage'] + 1}", f"{line['length']} tokens"
                yield row(f"held-out {measure} {task}", arm, line[measure], task=task, **about)
        for length, accuracy in zip(reading["lengths"], read["accuracies"], strict=True):
            yield row(SAME_TOKENS, f"{length} tokens", accuracy, **about)
        yield row(LESS_FREQUENCIES, "rope", read["less frequencies"], **about)


def read_contexts(directory, data, lengths, rows, mask_probability, mask_seed):
    """How well a model predicts the same masked tokens: its accuracy at each length, and its loss at the longest less
    that of the tokens' frequencies in the training documents."""
    import torch

    import roformer_cpp

    text_BT, masked_BT = _held_out_rows(data, rows, lengths[-1] - 2, lengths[0] - 2, mask_probability, mask_seed)
    asked_BT = masked_BT & _middle(torch.ones_like(masked_BT), lengths[0] - 2, outside=False)
    model, tokenizer = roformer_cpp.load_model(directory), roformer_cpp.Tokenizer(directory)
    ids_BT = text_BT.masked_fill(masked_BT, tokenizer.mask_token_id)
    accuracies, loss = [], 0.0
    for length in lengths:
        rows_BT = _between(_middle(ids_BT, length - 2), tokenizer.cls_token_id, tokenizer.sep_token_id)
        asked = _between(_middle(asked_BT, length - 2), False, False)
        accuracy, loss = _measured(model, rows_BT, asked, text_BT[asked_BT])
        accuracies.append(accuracy)
    return {"accuracies": accuracies, "less frequencies": loss - _loss_of_frequencies(data, text_BT[asked_BT], model)}


def _held_out_rows(data, rows, tokens, every, mask_probability, seed):
    """The first rows of so many held-out tokens, one from every so many tokens of a document, and which of their tokens
    are masked: whole words, the same ones in all rows that have them."""
    import torch

    import roformer_cpp

    documents, generator = roformer_cpp.ShardDataset(data, "valid", check=False), torch.Generator().manual_seed(seed)
    found = []
    for number in range(documents.documents):
        ids_N, starts_N = documents.document(number)
        is_masked = torch.rand(len(ids_N) + 1, generator=generator) < mask_probability
        if len(ids_N) >= tokens:
            found.append([each.unfold(0, tokens, every) for each in (ids_N, is_masked[starts_N.cumsum(0)])])
    if not found:
        raise ValueError(f"[table4] held-out documents must have {tokens} tokens, got none so long in {data}")
    return [torch.cat(parts)[:rows] for parts in zip(*found, strict=True)]


def _middle(x_BT, tokens, outside=None):
    """The middle of rows; with `outside` in rows as long as before."""
    begin = (x_BT.shape[1] - tokens) // 2
    if outside is None:
        return x_BT[:, begin : begin + tokens]
    whole = x_BT.new_full(x_BT.shape, outside)
    whole[:, begin : begin + tokens] = x_BT[:, begin : begin + tokens]
    return whole


def _between(x_BT, first, last):
    import torch

    ends = [x_BT.new_full((len(x_BT), 1), value) for value in (first, last)]
    return torch.cat([ends[0], x_BT, ends[1]], 1)


def _measured(model, ids_BT, asked_BT, targets_N):
    """(accuracy, loss) of the asked tokens."""
    import torch

    batch, correct, loss = max(8192 // ids_BT.shape[1], 1), 0, 0.0
    with torch.no_grad():
        for ids, asked in zip(ids_BT.split(batch), asked_BT.split(batch), strict=True):
            targets = targets_N[: asked.sum()]
            targets_N = targets_N[len(targets) :]
            if not len(targets):
                continue
            logits_NV = model.masked_lm_logits(model.encode(ids)[asked]).double()
            correct += (logits_NV.argmax(-1) == targets).sum().item()
            loss += torch.nn.functional.cross_entropy(logits_NV, targets, reduction="sum").item()
    return correct / asked_BT.sum().item(), loss / asked_BT.sum().item()


def _loss_of_frequencies(data, targets_N, model):
    """By the frequencies of tokens in the training documents, each counted once more than it occurs."""
    import torch

    import roformer_cpp

    documents, size = roformer_cpp.ShardDataset(data, "train", check=False), model.config["vocab_size"]
    counts_V = torch.ones(size, dtype=torch.int64)
    for number in range(documents.documents):
        counts_V += torch.bincount(documents.document(number)[0], minlength=size)
    return -(counts_V.double() / counts_V.sum()).log()[targets_N].mean().item()


EXPERIMENTS = [
    Experiment(
        "staged-pretraining",
        "Does masked-LM accuracy grow with the length? (Table 4)",
        run,
        settings,
        shares_arms=True,
        hours=1.2,
        exceptions=(
            "the Chinese text of --data in place of 34 GB of it",
            "from random weights, where the published model starts from WoBERT's",
        ),
    )
]
