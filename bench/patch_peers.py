#!/usr/bin/env python3
"""Times models of transformers, patched and unpatched: inference and a training step of each family.

Random weights, 2 layers, width 512, 8 heads of 64 (4 of keys and values in decoders), feed-forward width 2048, a
vocabulary of 1000; 2048 tokens in all. Sides: `roformer_cpp.patch`; transformers' sdpa, where the family supports it;
its eager attention. Timed are a forward pass without gradients; a training step, forward and backward of the
cross-entropy of random labels, without an optimizer, and with dropout if the family's configuration has attention
dropout; and for Llama one token after a cache with that many tokens.

Before anything is timed, logits and gradients are compared with the unpatched model in float64, on one row: the error
of the patched model must be at most twice the error of the unpatched model in the same dtype.
"""

import copy
import itertools
import warnings
from collections.abc import Callable

import harness
import tables

import roformer_cpp  # before torch

import torch  # isort: skip
import transformers  # isort: skip

TABLES = ["patch_peers"]
ALL_TOKENS, VOCAB = 2048, 1000
PLAIN_ERRORS = 2.0
SIZES = {"hidden_size": 512, "num_hidden_layers": 2, "num_attention_heads": 8, "intermediate_size": 2048}
DECODER = SIZES | {"num_key_value_heads": 4, "head_dim": 64}
T5 = {"d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 1, "num_decoder_layers": 1, "num_heads": 8}
SHARED = {"vocab_size": VOCAB, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
FAMILIES = {
    "RoFormer": ("RoFormerForMaskedLM", SIZES | {"embedding_size": 512}),
    "BERT": ("BertForMaskedLM", SIZES),
    "T5": ("T5ForConditionalGeneration", T5 | {"decoder_start_token_id": 0}),
    "DeBERTa-v2": (
        "DebertaV2ForMaskedLM",
        SIZES
        | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 256, "share_att_key": True}
        | {"norm_rel_ebd": "layer_norm", "position_biased_input": False},
    ),
    "ModernBERT": ("ModernBertForMaskedLM", SIZES | {"intermediate_size": 1024, "global_attn_every_n_layers": 2}),
    "Llama": ("LlamaForCausalLM", DECODER),
    "GPT-NeoX": ("GPTNeoXForCausalLM", SIZES),
    "Qwen3": ("Qwen3ForCausalLM", DECODER),
    "Gemma": ("GemmaForCausalLM", DECODER),
    "Gemma 3": ("Gemma3ForCausalLM", DECODER | {"sliding_window": 256, "sliding_window_pattern": 2}),
}
CACHED = ["Llama"]
DROPOUT_KEYS = ("attention_probs_dropout_prob", "hidden_dropout_prob", "dropout_rate", "attention_dropout")


class Case:
    """One family, shape and dtype: the same weights for every side."""

    def __init__(self, family: str, tokens: int, dtype: torch.dtype):
        head, settings = FAMILIES[family]
        cls = getattr(transformers, head)
        lengths = {} if family == "T5" else {"max_position_embeddings": max(512, tokens)}
        config = cls.config_class(**SHARED, **settings, **lengths)
        self.dropout = any(getattr(config, key, 0) for key in DROPOUT_KEYS)
        torch.manual_seed(0)
        self.plain = cls(config).eval()
        with torch.no_grad():
            for parameter in self.plain.parameters():
                if parameter.requires_grad:
                    parameter.add_(0.02 * torch.randn(parameter.shape))
        self.plain.to(dtype)
        self.family, self.tokens, self.dtype = family, tokens, dtype
        self.ids = torch.randint(3, VOCAB, (ALL_TOKENS // tokens, tokens))
        self.labels = self.ids.roll(1, 1)

    def sides(self) -> dict[str, torch.nn.Module]:
        sides = {"patched": roformer_cpp.patch(copy.deepcopy(self.plain))}
        if self.plain.config._attn_implementation == "sdpa":
            sides["sdpa"] = self.plain
            sides["eager"] = copy.deepcopy(self.plain)
            sides["eager"].set_attn_implementation("eager")
        else:
            sides["eager"] = self.plain
        return sides

    def results(self, model: torch.nn.Module) -> dict[str, torch.Tensor]:
        """Logits and gradients of one row, in evaluation mode."""
        model.zero_grad(set_to_none=True)
        out = model(input_ids=self.ids[:1], labels=self.labels[:1])
        out.loss.backward()
        found = {name: p.grad.double() for name, p in model.named_parameters() if p.grad is not None}
        model.zero_grad(set_to_none=True)
        return found | {"logits": out.logits.detach().double()}

    def check(self, sides: dict[str, torch.nn.Module]) -> None:
        truth = self.results(copy.deepcopy(self.plain).double())
        plain, patched = (error(self.results(model), truth) for model in (self.plain, sides["patched"]))
        for name, ours, theirs in zip(("logits", "gradients"), patched, plain, strict=True):
            if not ours <= PLAIN_ERRORS * theirs:
                raise SystemExit(
                    f"[patch_peers] {self.family}, {self.tokens} tokens, {self.dtype}: the error of the {name} must be "
                    f"within {PLAIN_ERRORS} times {theirs:.3g}, got {ours:.3g}"
                )


def error(results: dict[str, torch.Tensor], truth: dict[str, torch.Tensor]) -> tuple[float, float]:
    """Norms of the errors of logits and of all gradients."""
    if results.keys() != truth.keys():
        return float("inf"), float("inf")
    squares = {name: ((results[name] - value) ** 2).sum().item() for name, value in truth.items()}
    logits = squares.pop("logits")
    return logits**0.5, sum(squares.values()) ** 0.5


def inference(case: Case, model: torch.nn.Module) -> Callable[[], None]:
    def call():
        with torch.inference_mode():
            model(input_ids=case.ids, **({"labels": case.labels} if case.family == "T5" else {}))

    return call


def training(case: Case, model: torch.nn.Module) -> Callable[[], None]:
    def call():
        model(input_ids=case.ids, labels=case.labels).loss.backward()
        model.zero_grad(set_to_none=True)

    return call


def one_token(case: Case, model: torch.nn.Module) -> Callable[[], None]:
    """The last token after a cache of the earlier tokens; the cache is cropped afterwards, so all calls are equal."""
    with torch.no_grad():
        cache = model(case.ids[:, :-1], use_cache=True).past_key_values
    last = case.ids[:, -1:]

    def call():
        with torch.no_grad():
            model(last, past_key_values=cache, use_cache=True)
            cache.crop(-1)

    return call


def compare(case: Case, rounds: int):
    sides = case.sides()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # cases that the kernel does not support
        case.check(sides)
    tasks = {"inference": (inference, False), "training": (training, False)}
    if case.dropout:
        tasks["training, dropout"] = (training, True)
    if case.family in CACHED:
        tasks["one token after a cache"] = (one_token, False)
    for task, (make, dropout) in tasks.items():
        for model in sides.values():
            model.train(dropout)
        windows = [harness.Windows(name, make(case, model)) for name, model in sides.items()]
        harness.take_turns(windows, rounds, window_s=0.2)
        for side in windows:
            yield {
                "family": case.family,
                "tokens": case.tokens,
                "dtype": str(case.dtype).removeprefix("torch."),
                "task": task,
                "side": side.name,
                "ms": round(1e3 * side.median, 2),
                "patched_times_as_fast": round(harness.median_ratio(side, windows[0]), 2),
            }


def table(results: list[dict]) -> str:
    """A row for each family, task and dtype; a column for each number of tokens: times as fast as sdpa, as eager."""
    lengths = sorted({result["tokens"] for result in results})

    columns = {("patched", n): f"{ALL_TOKENS // n} x {n}: ms" for n in lengths}
    columns |= {(other, n): f"{n}: {other}" for n in lengths for other in ("sdpa", "eager")}

    def entries():
        for (side, tokens), title in columns.items():
            for result in results:
                if (result["side"], result["tokens"]) == (side, tokens):
                    figure = f"{result['ms']:.0f}" if side == "patched" else f"{result['patched_times_as_fast']:.2f}"
                    yield (result["family"], result["dtype"], result["task"]), title, figure

    return tables.pivot(["family", "dtype", ""], entries())


def main():
    parser = harness.options(__doc__, TABLES, rounds=3)
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--tokens", nargs="+", type=int, default=[128, 512, 2048])
    parser.add_argument("--dtypes", nargs="+", choices=["float32", "bfloat16"], default=["float32", "bfloat16"])
    given = harness.parsed(parser)
    results = []
    for dtype, family, tokens in itertools.product(given.dtypes, given.families, given.tokens):
        results += harness.shown(compare(Case(family, tokens, getattr(torch, dtype)), given.rounds))
    harness.finish(given, results, {TABLES[0]: table(results)})


if __name__ == "__main__":
    main()
