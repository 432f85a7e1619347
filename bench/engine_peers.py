#!/usr/bin/env python3
"""Compares the engine with other programs that run an encoder on a CPU: RoFormer-base (12 layers of 768), or other
families with the sizes of a published model; random weights.

Sides: engine (ours, without torch); transformers, eager; the same by torch.compile with freezing; ONNX Runtime, float32
and dynamic int8; OpenVINO, in int8 by NNCF; zentorch. Each side uses float32, bfloat16 and int8 if it supports them,
and is a separate process that loads the same model directory; one works at a time.

Before anything is timed, every side's hidden states are compared with transformers in float32 without padding: float32
to T4 (tests/tolerances.py), bfloat16 within three times the error of transformers in bfloat16; for int8 the cosine is
reported. The ceiling is the speed of packed products of the engine's library in the same rounds, 1024 x 3072 x 768.
"""

import ctypes
import functools
import json
import multiprocessing
import os
import sys
import tempfile
import time
from pathlib import Path

import harness
import numpy as np
import tables
from harness import Windows

TABLES = ["engine_peers", "engine_peers mixed", "engine_peers families"]
VOCAB = 21128  # of all models: the size of the table changes no speed
# Classes of configurations and sizes: RoFormer-base, ModernBERT-base, nomic-embed-text-v1.5, gte-base-en-v1.5,
# EuroBERT-210m, Qwen3-Embedding-0.6B. Other keys have the class's defaults.
FAMILIES = {
    "roformer": ("RoFormer", dict(embedding_size=768, max_position_embeddings=1536)),
    "modernbert": ("ModernBert", dict(cls_token_id=1, sep_token_id=2)),
    "nomic_bert": ("NomicBert", {}),
    "gte": ("Gte", {}),
    "eurobert": ("EuroBert", dict(mask_token_id=3)),
    "qwen3": (
        "Qwen3",
        dict(hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16)
        | dict(num_key_value_heads=8, head_dim=128, max_position_embeddings=32768),
    ),
}
SHAPES = ["1x8", "1x32", "1x128", "8x128", "4x512", "1x1024"]
MIXED_BATCH, MIXED_TEXTS, MIXED_LONGEST = 16, 128, 512
CALIBRATION_ROWS, CALIBRATION_TOKENS = 8, 128
T4_MAX, BFLOAT16_ERRORS = 2e-5, 3.0
WINDOW_S = 0.3


def flops(config, lengths):
    """Operations of the products and of attention, for sequences with `lengths` tokens. Attention that is causal or has
    windows counts what it reads."""
    hidden, heads = config.hidden_size, config.num_attention_heads
    size = getattr(config, "head_dim", None) or hidden // heads
    keys = getattr(config, "num_key_value_heads", None) or heads
    parts = 2 if config.model_type == "roformer" else 3  # of the feed-forward network
    weights = hidden * size * (2 * heads + 2 * keys) + parts * hidden * config.intermediate_size
    total = 0
    for kind in getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers:
        # ModernBERT's sliding_window is the distance to either side.
        window = 2 * config.sliding_window + 1 if kind == "sliding_attention" else max(lengths)
        pairs = sum(n * (n + 1) / 2 if config.model_type == "qwen3" else n * min(n, window) for n in lengths)
        total += 2 * sum(lengths) * weights + 4 * pairs * heads * size
    return total


class Engine:
    def __init__(self, directory, precision):
        import rf_engine

        self.engine = rf_engine.Engine(directory, precision, token_budget=8192)

    def __call__(self, sequences):
        return self.engine.hidden(sequences)


class Padded:
    """A side that takes rows of one length, with a mask."""

    def __call__(self, sequences):
        hidden = self.run(*harness.padded(sequences))
        return np.concatenate([hidden[row, : len(s)] for row, s in enumerate(sequences)])


class Torch(Padded):
    def __init__(self, directory, precision, backend=None):
        import torch
        import transformers

        self.torch = torch
        self.model = transformers.AutoModel.from_pretrained(directory, dtype=torch.float32).eval()
        if precision == "bfloat16":
            self.model = self.model.to(torch.bfloat16)
        if backend == "zentorch":
            import zentorch  # noqa: F401
        if backend:
            torch._inductor.config.freezing = True
            self.model = torch.compile(self.model, backend=backend, dynamic=False)

    def run(self, ids, mask):
        torch = self.torch
        with torch.inference_mode():
            output = self.model(input_ids=torch.from_numpy(ids), attention_mask=torch.from_numpy(mask))
            return output.last_hidden_state.float().numpy()


def onnx_file(directory):
    """The model as ONNX, made once."""
    path = Path(directory) / "model.onnx"
    if not path.exists():
        import onnx_files

        onnx_files.export(directory, path, ["input_ids", "attention_mask"])
    return path


class OnnxRuntime(Padded):
    def __init__(self, directory, precision):
        import onnxruntime

        path = onnx_file(directory)
        if precision == "int8":
            from onnxruntime.quantization import quantize_dynamic

            quantized = path.with_suffix(".int8.onnx")
            if not quantized.exists():
                quantize_dynamic(path, quantized, per_channel=True)
            path = quantized
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = os.cpu_count()
        options.log_severity_level = 4
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def run(self, ids, mask):
        names = [i.name for i in self.session.get_inputs()]
        return self.session.run(None, dict(zip(names, (ids, mask), strict=False)))[0]


def openvino_int8(core, path):
    """The ONNX file with weights and activations in int8, made once by NNCF from a few rows of random tokens."""
    quantized = path.with_suffix(".int8.xml")
    if not quantized.exists():
        import nncf
        import openvino

        random = np.random.default_rng(0)
        ones = np.ones((1, CALIBRATION_TOKENS), np.int64)
        rows = [random.integers(1, VOCAB, ones.shape) for _ in range(CALIBRATION_ROWS)]
        model = core.read_model(path)
        samples = nncf.Dataset([[row, ones][: len(model.inputs)] for row in rows])
        kind = nncf.ModelType.TRANSFORMER
        openvino.save_model(nncf.quantize(model, samples, model_type=kind, subset_size=len(rows)), quantized)
    return quantized


class OpenVino(Padded):
    def __init__(self, directory, precision):
        import openvino

        core = openvino.Core()
        path = onnx_file(directory)
        if precision == "int8":
            path = openvino_int8(core, path)
        hint = {"float32": "f32", "bfloat16": "bf16", "int8": "f32"}[precision]
        settings = {"INFERENCE_PRECISION_HINT": hint, "PERFORMANCE_HINT": "LATENCY"}
        self.model = core.compile_model(core.read_model(path), "CPU", settings)

    def run(self, ids, mask):
        inputs = [ids, mask][: len(self.model.inputs)]
        return np.asarray(self.model(inputs)[0], np.float32)


class LinearArgs(ctypes.Structure):
    """rf_linear_args of rf/linear.h"""

    _fields_ = [
        *(("struct_size", ctypes.c_size_t), ("dtype", ctypes.c_int), ("activation", ctypes.c_int)),
        *((name, ctypes.c_int64) for name in ("rows", "in_", "out")),
        *(("x", ctypes.c_void_p), ("x_stride", ctypes.c_int64)),
        *(("weight", ctypes.c_void_p), ("weight_stride", ctypes.c_int64)),
        *(("packed", ctypes.c_void_p), ("bias", ctypes.c_void_p)),
        *(("y", ctypes.c_void_p), ("y_stride", ctypes.c_int64), ("weight_dtype", ctypes.c_int)),
    ]


class Ceiling:
    """Packed products of the engine's own library, [1024, 3072] by [768, 3072] transposed."""

    ROWS, IN, OUT = 1024, 3072, 768

    def __init__(self, _, precision):
        self.lib = ctypes.CDLL(str(harness.BUILD / "lib" / "libroformer_core.so"))
        dtype = 3 if precision == "bfloat16" else 1  # of x and y
        random = np.random.default_rng(0)
        arrays = [random.standard_normal((rows, self.IN), np.float32) for rows in (self.OUT, self.ROWS)]
        if precision == "bfloat16":
            arrays = [(x.view(np.uint32) >> 16).astype(np.uint16) for x in arrays]
        weight, x = self.arrays = arrays
        y, packed = np.zeros((self.ROWS, self.OUT), x.dtype), ctypes.c_void_p()
        shape, columns = (ctypes.c_int64(self.IN), ctypes.c_int64(self.OUT)), ctypes.c_int64(self.IN)
        given = *shape, ctypes.c_void_p(weight.ctypes.data), columns
        if precision == "int8":
            self.status(self.lib.rf_linear_pack_int8(*given, None, ctypes.byref(packed)))
        else:
            self.status(self.lib.rf_linear_pack(dtype, *given, ctypes.byref(packed)))
        self.arrays.append(y)
        self.args = LinearArgs(struct_size=ctypes.sizeof(LinearArgs), dtype=dtype, packed=packed)
        self.args.rows, self.args.in_, self.args.out = self.ROWS, self.IN, self.OUT
        self.args.x, self.args.x_stride = x.ctypes.data, self.IN
        self.args.y, self.args.y_stride = y.ctypes.data, self.OUT

    @staticmethod
    def status(code):
        if code != 0:
            raise RuntimeError(f"a packed product must be computed, got status {code}")

    def __call__(self, _):
        self.status(self.lib.rf_linear_forward(ctypes.byref(self.args)))

    @classmethod
    def rate(cls, seconds):
        return 2 * cls.ROWS * cls.IN * cls.OUT / seconds / 1e9


PRECISIONS = ["float32", "bfloat16", "int8"]
SIDES = {
    "engine": (Engine, PRECISIONS),
    "transformers": (Torch, ["float32", "bfloat16"]),
    "torch.compile": (functools.partial(Torch, backend="inductor"), ["float32", "bfloat16"]),
    "onnxruntime": (OnnxRuntime, ["float32", "int8"]),
    "openvino": (OpenVino, PRECISIONS),
    "zentorch": (functools.partial(Torch, backend="zentorch"), ["float32", "bfloat16"]),
}
CEILING = "ceiling"


def work(make, directory, precision, pipe):
    """A side's process: answers ("run", batches) with the results, and ("time", batches) with seconds."""
    try:
        side = make(directory, precision)
    except Exception as error:  # the others' error types are their own
        pipe.send(f"{type(error).__name__}: {str(error).strip().splitlines()[-1] if str(error).strip() else ''}")
        return
    pipe.send(None)
    while True:
        try:
            task, batches = pipe.recv()
        except EOFError:  # the comparison has ended
            return
        try:
            if task == "run":
                pipe.send([side(batch) for batch in batches])
                continue
            for batch in batches:
                side(batch)
            calls, start = 0, time.perf_counter()
            while calls == 0 or time.perf_counter() - start < WINDOW_S:
                for batch in batches:
                    side(batch)
                calls += 1
            pipe.send((time.perf_counter() - start) / calls)
        except Exception as error:
            pipe.send(f"{type(error).__name__}: {error}")


class Side(Windows):
    """A side and its process."""

    def __init__(self, name, precision, directory):
        super().__init__(f"{name} {precision}", None)
        self.program, self.precision = name, precision
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        make = Ceiling if name == CEILING else SIDES[name][0]
        self.process = context.Process(target=work, args=(make, directory, precision, theirs), daemon=True)
        self.process.start()
        theirs.close()
        try:
            self.missing = self.pipe.recv()
        except EOFError:
            self.missing = "its process ended"

    def ask(self, task, batches):
        self.pipe.send((task, batches))
        return self.pipe.recv()

    def close(self):
        self.pipe.close()
        self.process.join()


def available(sides):
    """The sides that can be used; says why others cannot."""
    for side in sides:
        if side.missing is not None:
            print(f"{side.name} is left out: {side.missing}", file=sys.stderr)
    return [side for side in sides if side.missing is None]


def make_model(family, directory):
    import torch
    import transformers

    torch.manual_seed(0)
    stem, sizes = FAMILIES[family]
    config = getattr(transformers, f"{stem}Config")(
        vocab_size=VOCAB, pad_token_id=0, bos_token_id=1, eos_token_id=2, **sizes
    )
    transformers.AutoModel.from_config(config).save_pretrained(directory)


def random_sequences(lengths, seed=0):
    random = np.random.default_rng(seed)
    return [random.integers(1, VOCAB, n).astype(np.int32) for n in lengths]


def verify(sides):
    """Removes sides whose results are wrong; returns their errors."""
    sequences = [random_sequences((32,)), random_sequences((7, 100, 64))]
    plain = next(s for s in sides if s.name == "transformers float32")
    exact = np.concatenate(plain.ask("run", [[s] for batch in sequences for s in batch]))
    errors = {}
    for side in sides:
        result = side.ask("run", sequences)
        if isinstance(result, str):
            side.missing = result
            continue
        ours = np.concatenate(result)
        cosine = (ours * exact).sum(-1) / np.linalg.norm(ours, axis=-1) / np.linalg.norm(exact, axis=-1)
        errors[side.name] = (float(np.abs(ours - exact).max() / np.abs(exact).max()), float(cosine.min()))
    allowed = {"float32": T4_MAX, "int8": np.inf}
    if "transformers bfloat16" in errors:
        allowed["bfloat16"] = BFLOAT16_ERRORS * errors["transformers bfloat16"][0]
    for side in sides:
        if side.missing is None and errors[side.name][0] > allowed[side.precision]:
            side.missing = f"its error is {errors[side.name][0]:.2g}, and at most {allowed[side.precision]:.2g} counts"
    return errors


def time_sides(sides, work_of, rounds):
    """Notes the seconds of each side in each round; work_of(side): its batches."""
    for side in sides:
        side.seconds.clear()
    for _ in range(rounds):
        for side in sides:
            time.sleep(harness.PAUSE_S)
            result = side.ask("time", work_of(side))
            if isinstance(result, str):
                sys.exit(f"{side.name}: {result}")
            side.seconds.append(result)


def in_batches(sequences, order):
    rows = sorted(sequences, key=len) if order == "sorted" else sequences
    return [rows[i : i + MIXED_BATCH] for i in range(0, len(rows), MIXED_BATCH)]


def report(config, case, lengths, sides):
    """A result for each side: milliseconds, rates, share of the ceiling, and the speed of the engine over it."""
    by_name = {side.name: side for side in sides}
    for side in sides:
        if side.program == CEILING:
            continue
        best = min(side.seconds)
        rate, share = flops(config, lengths) / best / 1e9, "-"
        if ceiling := by_name.get(f"{CEILING} {side.precision}"):
            share = f"{rate / Ceiling.rate(min(ceiling.seconds)):.2f}"
        yield {
            "sequences": case,
            "side": f"{side.program}, {side.precision}",
            "ms": f"{best * 1e3:.1f}",
            "tokens/s": f"{sum(lengths) / best:.0f}",
            "GFLOP/s": f"{rate:.0f}",
            "of the ceiling": share,
            "engine's speed over it": f"{harness.median_ratio(side, by_name[f'engine {side.precision}']):.2f}",
        }


def open_sides(wanted, directory):
    """The sides with these names and precisions that work and are exact enough."""
    needed = [("transformers", "float32")]
    if any(precision == "bfloat16" for _, precision in wanted):
        needed.append(("transformers", "bfloat16"))
    sides = available([Side(*each, directory) for each in dict.fromkeys([*wanted, *needed])])
    errors = verify(sides)
    return [side for side in available(sides) if (side.program, side.precision) in wanted], errors


def compare(family, directory, given):
    """Errors of the sides; results for shapes; results for files of mixed lengths."""
    import transformers

    if not (Path(directory) / "config.json").exists():
        make_model(family, directory)
    config = transformers.AutoConfig.from_pretrained(directory)
    sides, errors = open_sides(given.wanted, directory)
    ceilings = available([Side(CEILING, p, directory) for p in sorted({side.precision for side in sides})])
    results, mixed = [], []
    for shape in given.shapes:
        batch, tokens = map(int, shape.split("x"))
        sequences = random_sequences([tokens] * batch)
        time_sides(sides + ceilings, lambda side, s=sequences: [s], given.rounds)
        results += harness.shown(report(config, shape, [tokens] * batch, sides + ceilings))
    for path in given.mixed:
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()][:MIXED_TEXTS]
        sequences = random_sequences([min(len(line) + 2, MIXED_LONGEST) for line in lines])
        for order in ("arrival", "sorted"):
            batches = in_batches(sequences, order)
            time_sides(sides, lambda s, b=batches, q=sequences: [q] if s.program == "engine" else b, given.rounds)
            mixed += harness.shown(report(config, f"{path.stem} {order}", [len(s) for s in sequences], sides))
    for side in sides + ceilings:
        side.close()
    return errors, results, mixed


def main():
    parser = harness.options(__doc__, TABLES, rounds=5)
    parser.add_argument("--families", nargs="*", default=[], choices=list(FAMILIES), help="default: roformer alone")
    parser.add_argument("--sides", nargs="*", default=list(SIDES), choices=list(SIDES))
    parser.add_argument("--precisions", nargs="+", default=PRECISIONS, choices=PRECISIONS, help="default: all")
    parser.add_argument("--shapes", nargs="*", default=SHAPES)
    add = "what earlier runs with --families on this machine and commit wrote by --json; their rows come first"
    parser.add_argument("--add", type=Path, nargs="*", default=[], help=add)
    mixed = (
        "useful tokens per second for the lengths of 128 lines (characters, at most 512): of the engine, which does "
        "not pad, and of the others in batches of 16, in order of arrival and sorted by length"
    )
    parser.add_argument("--mixed", type=Path, nargs="*", default=[], help=mixed)
    parser.add_argument("--model", help="directory for the model and what is made of it; default: a temporary one")
    given = parser.parse_args()
    given.wanted = [(name, each) for name in given.sides for each in SIDES[name][1] if each in given.precisions]
    if not given.wanted:
        parser.error("--sides and --precisions must leave a side, got none")
    directory = given.model or tempfile.mkdtemp(prefix="engine-peers-")
    if given.families:
        errors, rows = {}, []
        for path in given.add:
            earlier = json.loads(path.read_text(encoding="utf-8"))
            if earlier["machine"] != harness.machine():
                sys.exit(f"{path} must be of this machine and commit, got {earlier['machine']}")
            errors |= earlier["results"]["errors"]
            rows += earlier["results"]["families"]
        for family in given.families:
            errors[family], *found = compare(family, Path(directory) / family, given)
            rows += [{"model": family} | row for results in found for row in results]
        texts = {TABLES[2]: tables.of_dicts(rows)}
        return harness.finish(given, {"errors": errors, "families": rows}, texts)
    errors, results, mixed = compare("roformer", directory, given)
    texts = {name: tables.of_dicts(rows) for name, rows in zip(TABLES, (results, mixed), strict=False) if rows}
    harness.finish(given, {"errors": errors, "results": results, "mixed": mixed}, texts)


if __name__ == "__main__":
    main()
