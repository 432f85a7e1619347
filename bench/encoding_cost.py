#!/usr/bin/env python3
"""Attention with each encoding, relative to RoPE: 12 heads of 64 in float32, forward and with backward.

A call computes an encoding's terms from its parameters and attends with them, in the fused kernel unless --kernel names
another; the backward reaches queries, keys, values and the parameters. An encoding that needs causal attention is
compared with RoPE's causal attention. This counts the CPU time of one thread, so other programs hardly disturb it.

--terms: the fused kernel alone at 2048 and 512 tokens, with random numbers in the terms of each encoding, on all
threads.
"""

import time
from dataclasses import dataclass

import harness
import tables
import torch

import roformer_cpp
from roformer_cpp import DistanceTable, Rotation, Terms

TABLES = {"encodings": "encoding_cost", "terms": "encoding_cost terms"}
HEADS, HEAD_DIM = 12, 64
ENCODINGS = ["alibi", "t5", "kerple-log", "kerple-power", "sandwich", "fire", "fox", "huang-m1", "huang-m3", "path"]
CAUSAL_ROPE = "rope, causal"
TRAINED_ROTATIONS = "rope, trained rows for each head"
WINDOW_S = 0.15
PASSES = {False: "forward", True: "forward and backward"}


@dataclass
class Side(harness.Windows):
    compared_with: str = "rope"


def windows(name, terms_of, q, k, v, backward, parameters=(), **options):
    """A side: attention with the terms that `terms_of` makes of q and k; a backward reaches q, k, v and parameters."""
    if not backward:

        def forward():
            with torch.inference_mode():
                roformer_cpp.attention(q, k, v, terms_of(q, k), **options)

        return Side(name, forward)
    leaves = [x.detach().clone().requires_grad_() for x in (q, k, v)]
    grad = torch.randn_like(v)

    def train():
        out = roformer_cpp.attention(*leaves, terms_of(*leaves[:2]), **options)
        torch.autograd.grad(out, [*leaves, *parameters], grad)

    return Side(name, train)


def encodings(names, tokens, backward, kernel):
    """Sides that compute an encoding's terms too."""
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, tokens, HEADS, HEAD_DIM).unbind()
    positions = torch.arange(tokens)
    causal = {each["name"]: each["needs_causal"] for each in roformer_cpp.encodings()}
    shape = {"num_attention_heads": HEADS, "head_dim": HEAD_DIM, "max_position_embeddings": tokens}
    for name in ("rope", CAUSAL_ROPE, *names):
        encoding_name = "rope" if name == CAUSAL_ROPE else name
        is_causal = name == CAUSAL_ROPE or causal[name]
        encoding = roformer_cpp.encoding(encoding_name, **shape, is_decoder=is_causal)

        def terms_of(q, k, encoding=encoding):
            return encoding.terms(positions, queries=q, keys=k, hidden_states=q.flatten(2))

        parameters = [x for x in encoding.parameters() if x.requires_grad]
        side = windows(name, terms_of, q, k, v, backward, parameters, kernel=kernel, is_causal=is_causal)
        side.compared_with = CAUSAL_ROPE if is_causal else "rope"
        yield side


def random_terms(tokens):
    """Random numbers in the terms of each encoding; time does not depend on them."""
    angles = torch.arange(tokens)[:, None] * 10000.0 ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    rotation = Rotation(angles.cos()[None], angles.sin()[None])
    by_head = Rotation(*(rows[:, :, None].expand(-1, -1, HEADS, -1).contiguous() for rows in rotation))

    def table(lo, hi, heads=HEADS):
        return DistanceTable(torch.randn(heads, hi - lo + 1, HEAD_DIM) * 0.3, lo, hi)

    bias = DistanceTable(torch.randn(HEADS, 2 * tokens - 1), 1 - tokens, tokens - 1)
    per_head, per_position = torch.randn(HEADS, HEAD_DIM), torch.randn(HEADS, tokens, HEAD_DIM)
    return {
        "rope": Terms(query=rotation, key=rotation),
        "none": Terms(),
        "t5, alibi": Terms(bias=bias),
        "shaw, nezha, clip 64": Terms(key_table=table(-64, 64, 1), value_table=table(-64, 64, 1)),
        "tupe-r": Terms(
            position_query=per_position,
            position_key=torch.randn(HEADS, tokens, HEAD_DIM),
            reset_row=torch.randn(HEADS),
            reset_col=torch.randn(HEADS),
            bias=bias,
        ),
        "transformer-xl": Terms(
            content_bias=per_head, position_bias=-per_head, key_table=table(1 - tokens, tokens - 1)
        ),
        "deberta, 512": Terms(key_table=table(-512, 511), query_table=table(-512, 511)),
        "a number by key": Terms(key_score=torch.randn(2048 // tokens, HEADS, tokens)),
        "a dense pair bias": Terms(pair_bias=torch.randn(1, HEADS, tokens, tokens)),
        "a dense pair bias, one for all heads": Terms(pair_bias=torch.randn(1, 1, tokens, tokens)),
        "rope, rows for each head": Terms(query=by_head, key=by_head),
        TRAINED_ROTATIONS: Terms(query=by_head, key=by_head),
    }


def trainable(terms, rotations=False):
    """Every term; rotations only on request, because their rows are constants in most encodings."""
    leaves = []

    def leaf(tensor):
        leaves.append(tensor.clone().requires_grad_())
        return leaves[-1]

    fields = {}
    for name, value in vars(terms).items():
        if isinstance(value, DistanceTable):
            fields[name] = DistanceTable(leaf(value.rows), value.lo, value.hi)
        elif isinstance(value, Rotation) and rotations:
            fields[name] = Rotation(leaf(value.cos), leaf(value.sin))
        else:
            fields[name] = leaf(value) if isinstance(value, torch.Tensor) else value
    return Terms(**fields), leaves


def given_terms(tokens, backward):
    """Sides of the kernel alone."""
    q, k, v = torch.randn(3, 2048 // tokens, tokens, HEADS, HEAD_DIM).unbind()
    for name, terms in random_terms(tokens).items():
        leaves = []
        if backward:
            terms, leaves = trainable(terms, rotations=name == TRAINED_ROTATIONS)
        yield windows(name, lambda q, k, terms=terms: terms, q, k, v, backward, leaves, kernel="fused")


def times(tokens, backward, sides, rounds, clock):
    sides = list(sides)
    harness.take_turns(sides, rounds, WINDOW_S, clock)
    by_name = {side.name: side for side in sides}
    for side in sides:
        yield {
            "tokens": tokens,
            "pass": PASSES[backward],
            "encoding": side.name,
            "ms": round(1e3 * side.median, 3),
            "of_rope": round(harness.median_ratio(side, by_name[side.compared_with]), 2),
        }


def encodings_table(results):
    def entries():
        for result in results:
            yield (result["encoding"],), f"{result['pass']}, ms", f"{result['ms']:.1f}"
            yield (result["encoding"],), f"{result['pass']}, of RoPE", f"{result['of_rope']:.2f}"

    return tables.pivot([f"{results[0]['tokens']} tokens"], entries())


def terms_table(results):
    return tables.pivot(
        ["terms of"], (((r["encoding"],), f"{r['tokens']}, {r['pass']}", f"{r['of_rope']:.2f}") for r in results)
    )


def main():
    parser = harness.options(__doc__, TABLES, rounds=9)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--encodings", nargs="+", metavar="NAME", default=ENCODINGS)
    parser.add_argument("--kernel", choices=["fused", "explicit"], default="fused")
    parser.add_argument("--terms", action="store_true", help="the kernel alone with the terms of each encoding")
    given = harness.parsed(parser)
    results = []
    if given.terms:
        for tokens in (2048, 512):
            for backward in PASSES:
                sides = given_terms(tokens, backward)
                results += harness.shown(times(tokens, backward, sides, given.rounds, time.perf_counter))
        harness.finish(given, results, {TABLES["terms"]: terms_table(results)})
        return
    torch.set_num_threads(1)
    for backward in PASSES:
        sides = encodings(given.encodings, given.tokens, backward, given.kernel)
        results += harness.shown(times(given.tokens, backward, sides, given.rounds, time.thread_time))
    harness.finish(given, results, {TABLES["encodings"]: encodings_table(results)})


if __name__ == "__main__":
    main()
