#!/usr/bin/env python3
"""Times models of transformers, patched and unpatched: inference and a training step of each family.

    bench/patch_peers.py [--families bert llama] [--tokens 128 512 2048] [--dtypes float32 bfloat16] [--rounds N]
                         [--json FILE] [--update-docs]

Random weights, 2 layers, width 512, 8 heads of 64 (4 of keys and values in decoders), feed-forward width 2048, a
vocabulary of 1000; 2048 tokens in all, in rows of 128, 512 or 2048. Sides: `roformer_cpp.patch`; transformers' sdpa,
where the family supports it; its eager attention. Timed are a forward pass without gradients; a training step, forward
and backward of the cross-entropy of random labels, without an optimizer, and with dropout if the family's configuration
has attention dropout; and for Llama one token after a cache with that many tokens.

Before anything is timed, logits and gradients are compared with the unpatched model in float64, on one row: the error
of the patched model must be at most twice the error of the unpatched model in the same dtype. The sides then take turns
in windows of one process; a ratio is the median of the ratios within a round.
"""

import argparse
import copy
import json
import statistics
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

import roformer_cpp  # noqa: E402 - before torch

import tables  # isort: skip  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from peer_timing import Windows, keep_freed_memory, machine, median_ratio, take_turns  # noqa: E402

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
        windows = [Windows(name, make(case, model)) for name, model in sides.items()]
        take_turns(windows, rounds, window_s=0.2)
        for side in windows:
            yield {
                "family": case.family,
                "tokens": case.tokens,
                "dtype": str(case.dtype).removeprefix("torch."),
                "task": task,
                "side": side.name,
                "ms": round(1e3 * statistics.median(side.seconds), 2),
                "patched_times_as_fast": round(median_ratio(side, windows[0]), 2),
            }


def table(results: list[dict]) -> str:
    """A row for each family, task and dtype; a column for each number of tokens: times as fast as sdpa, as eager."""
    lengths = sorted({r["tokens"] for r in results})
    rows = [["family", "dtype", ""] + [f"{ALL_TOKENS // n} x {n}: ms" for n in lengths]]
    rows[0] += [f"{n}: {other}" for n in lengths for other in ("sdpa", "eager")]
    found = {(r["family"], r["dtype"], r["task"], r["tokens"], r["side"]): r for r in results}
    for family, dtype, task in dict.fromkeys((r["family"], r["dtype"], r["task"]) for r in results):
        at = lambda n, side: found.get((family, dtype, task, n, side))  # noqa: B023, E731
        ours = [f"{at(n, 'patched')['ms']:.0f}" if at(n, "patched") else "" for n in lengths]
        ratios = [
            f"{at(n, side)['patched_times_as_fast']:.2f}" if at(n, side) else ""
            for n in lengths
            for side in ("sdpa", "eager")
        ]
        rows.append([family, dtype, task, *ours, *ratios])
    return tables.markdown(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--tokens", nargs="+", type=int, default=[128, 512, 2048])
    parser.add_argument("--dtypes", nargs="+", choices=["float32", "bfloat16"], default=["float32", "bfloat16"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", metavar="FILE", help="write machine, commit and results as JSON too")
    tables.add_option(parser)
    arguments = parser.parse_args()
    keep_freed_memory()
    print(json.dumps(machine()), flush=True)
    results = []
    for dtype in arguments.dtypes:
        for family in arguments.families:
            for tokens in arguments.tokens:
                for row in compare(Case(family, tokens, getattr(torch, dtype)), arguments.rounds):
                    results.append(row)
                    print(json.dumps(row), flush=True)
    if arguments.update_docs:
        tables.update_docs(TABLES[0], machine(), table(results))
    if arguments.json:
        document = {"machine": machine(), "rounds": arguments.rounds, "results": results}
        Path(arguments.json).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
