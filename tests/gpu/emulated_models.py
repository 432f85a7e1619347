"""Models on an emulated GPU against the same models on the CPU: ``python emulated_models.py LIBRARY [encodings]``.

The emulated GPU (emulated_gpu.cpp) computes with the kernels of the CPU, and refuses a tensor that is left on the CPU.
Prints one line for each case that differs; the exit code is 0 if none does.
"""

import ctypes
import sys

ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)  # before torch, which asks once whether there is CUDA
import torch  # noqa: E402

torch.cuda._lazy_init = lambda: None

import roformer_cpp  # noqa: E402
import tolerances as tol  # noqa: E402
from roformer_cpp.gpu import library  # noqa: E402

library.MODULES.clear()  # the kernels of the CPU
library.missing = lambda device: missing

from encoding_files import INFOS, sweep_keys  # noqa: E402

missing = None
DEVICE = "cuda:0"
B, T, WORDS = 2, 12, 31


def configuration(name, keys, **changes):
    sizes = dict(vocab_size=WORDS, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32)
    sizes |= dict(max_position_embeddings=64, attention_probs_dropout_prob=0.0, hidden_dropout_prob=0.1)
    return {"model_type": "rf_encoder", **sizes, "position_encoding": {"type": name, **keys}, **changes}


def inputs(kind):
    given = {"input_ids": torch.randint(WORDS, (B, T), generator=torch.Generator().manual_seed(1))}
    if kind == "mask":
        given["attention_mask"] = torch.ones(B, T, dtype=torch.int64)
        given["attention_mask"][0, T - 3 :] = 0
    if kind == "segments":
        given["segments"] = torch.tensor([[0] * 5 + [1] * 7, [0] * 8 + [1] * 2 + [-1] * 2], dtype=torch.int32)
        given["positions"] = torch.tensor([[*range(5), *range(7)], [*range(8), *range(2), 0, 0]])
    return given


def run(model, given, device, autocast=False):
    """The result and the gradients, and for a causal model the result of its tokens in two calls with a cache."""
    given = {name: value.to(device) for name, value in given.items()}
    model.zero_grad()
    with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=autocast):
        found = model(**given, dropout_key=(3, 5))
    found["hidden"].float().square().sum().backward()
    results = {"hidden": found["hidden"].detach().cpu()}
    if model.config["is_decoder"] and len(given) == 1:
        results["cached"] = cached(model, given["input_ids"])
    grads = {name: None if x.grad is None else x.grad.cpu().clone() for name, x in model.named_parameters()}
    return results | grads


def cached(model, ids):
    cache, parts = model.new_cache(), ids.split(T // 2, 1)
    model.eval()
    with torch.no_grad():
        found = torch.cat([model(part, cache=cache)["hidden"].cpu() for part in parts], 1)
    model.train()
    return found


def same(a, b):
    if a is None or b is None:
        return a is b
    # Without one kernel for everything, sums are added in another order.
    return torch.allclose(a.float(), b.float(), rtol=tol.EMULATED, atol=tol.EMULATED)


def cases(encodings):
    """The names and configurations of models."""
    for name in encodings or INFOS:
        yield name, configuration(name, sweep_keys(name, 8), is_decoder=INFOS[name]["needs_causal"])
    for feature_map in ("elu", "favor", "shen", "relu", "cosine") if not encodings else ():
        for causal in (False, True):
            linear = {"attention": {"type": "linear", "feature_map": feature_map}, "is_decoder": causal}
            yield f"linear {feature_map} {'causal' if causal else ''}", configuration("rope", {}, **linear)
    if not encodings:
        yield "prefix", configuration("rope", {}, is_decoder=True, prefix_lm=True)


def fails(name, config, kind, kernel):
    """Whether the case differs, which it prints."""
    global missing
    torch.manual_seed(0)
    model = roformer_cpp.build_model(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    model.train()
    missing = None if kernel == "fused" else "a test without kernels, got one"
    try:
        theirs = run(model, inputs(kind), "cpu")
        ours = run(model.to(DEVICE), inputs(kind), DEVICE)
        differ = [name for name in ours if not same(ours[name], theirs[name])]
        if kind == "plain":
            run(model, inputs(kind), DEVICE, autocast=True)
    except Exception as error:
        differ = f"{type(error).__name__}: {error}"
    if differ:
        print(f"{name}, {kind}, {kernel}: {differ}")
    return bool(differ)


def main():
    """Pairs of a model, a kind of inputs and a kernel."""
    failed = 0
    for i, (name, config) in enumerate(cases(sys.argv[2:])):
        kinds = ("plain", "mask") if config.get("prefix_lm") else ("plain", "segments", "mask")
        kinds = kinds[:2] if name in INFOS else kinds  # for an encoding, a mask is numbers of sequences too
        failed += sum(fails(name, config, kind, ("fused", "explicit")[(i + j) % 2]) for j, kind in enumerate(kinds))
    return failed


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
