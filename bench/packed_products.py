#!/usr/bin/env python3
"""Products of few and of many rows with packed weights (rf/linear.h), for the layers of a base encoder and the scores
of a vocabulary.

    bench/packed_products.py [--rows N ...] [--rounds N]

Each layer is compared with float64 before it is timed. `warm` repeats a call with one weight, which the caches keep if
it fits; `cold` cycles through more weights than caches hold. The shares divide GFLOP/s by those of 1024 rows, and GB/s
of weights by those of a copy of 128 MiB, bytes read and written, in the same run.
"""

import ctypes
import itertools

import harness
import numpy as np
import tables
from harness import BUILD, Windows

DTYPES = {"float32": 1, "bfloat16": 3, "int8": 1}  # of x and y
LAYERS = [(768, 768, ""), (768, 2304, ""), (768, 3072, ""), (768, 3072, "gelu"), (3072, 768, ""), (768, 50000, "")]
OK, GELU_ERF = 0, 1
MEMORY = 128 * 2**20  # bytes, far more than caches hold


class LinearArgs(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("dtype", ctypes.c_int),
        ("activation", ctypes.c_int),
        ("rows", ctypes.c_int64),
        ("in_", ctypes.c_int64),
        ("out", ctypes.c_int64),
        ("x", ctypes.c_void_p),
        ("x_stride", ctypes.c_int64),
        ("weight", ctypes.c_void_p),
        ("weight_stride", ctypes.c_int64),
        ("packed", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("y", ctypes.c_void_p),
        ("y_stride", ctypes.c_int64),
        ("weight_dtype", ctypes.c_int),
    ]


def bits_of_bfloat16(x):
    """Rounded to nearest even."""
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def as_float64(x):
    return (x.astype(np.uint32) << 16).view(np.float32).astype(np.float64) if x.dtype == np.uint16 else x.astype(float)


class PackedProduct:
    """y = x W^T of random numbers, or GELU of it; a call computes it again, for the first `args.rows` rows of x."""

    def __init__(self, rows, columns_in, columns_out, precision, activation=""):
        self.lib = ctypes.CDLL(str(BUILD / "lib" / "libroformer_core.so"))
        random = np.random.default_rng(0)
        weight = random.standard_normal((columns_out, columns_in), np.float32)
        x = random.standard_normal((rows, columns_in), np.float32)
        packed = ctypes.c_void_p()
        shape = (ctypes.c_int64(columns_in), ctypes.c_int64(columns_out))
        if precision == "int8":
            data = ctypes.c_void_p(weight.ctypes.data)
            stride, scales = ctypes.c_int64(columns_in), None
            status = self.lib.rf_linear_pack_int8(*shape, data, stride, scales, ctypes.byref(packed))
        else:
            if precision == "bfloat16":
                weight, x = bits_of_bfloat16(weight), bits_of_bfloat16(x)
            arguments = (ctypes.c_void_p(weight.ctypes.data), ctypes.c_int64(columns_in), ctypes.byref(packed))
            status = self.lib.rf_linear_pack(DTYPES[precision], *shape, *arguments)
        if status != OK:
            raise RuntimeError(f"packing for {precision} failed")
        self.weight, self.x, self.y = weight, x, np.zeros((rows, columns_out), x.dtype)
        self.args = LinearArgs(struct_size=ctypes.sizeof(LinearArgs), dtype=DTYPES[precision], rows=rows)
        self.args.activation = GELU_ERF if activation else 0
        self.args.in_, self.args.out, self.args.packed = columns_in, columns_out, packed
        self.args.x, self.args.x_stride = x.ctypes.data, columns_in
        self.args.y, self.args.y_stride = self.y.ctypes.data, columns_out

    def __call__(self):
        if self.lib.rf_linear_forward(ctypes.byref(self.args)) != OK:
            raise RuntimeError("the product failed")
        return self.y

    def flops(self):
        return 2 * self.args.rows * self.args.in_ * self.args.out

    def verify(self):
        """Every 61st column, against float64: the rounding of sums and of the result."""
        x, weight = as_float64(self.x), as_float64(self.weight[::61])
        want, magnitudes = x @ weight.T, np.abs(x) @ np.abs(weight).T
        if self.args.activation:
            import torch

            want = want * torch.special.ndtr(torch.from_numpy(want)).numpy()
        half = np.abs(want) * 2.0**-8 if self.y.dtype == np.uint16 else 0
        error = np.abs(as_float64(self()[:, ::61]) - want)
        if not (error <= 5 * 2.0**-23 * magnitudes + half).all():
            raise SystemExit(f"[packed_products] a product must agree with float64, got {error.max()} too much")


def times(precision, layer, rows, rounds, ceiling, copy_rate):
    wide, out, activation = layer
    for count in (1, 7, 33):
        PackedProduct(count, *layer[:2], precision, activation).verify()
    weight_bytes = wide * out * (2 if precision == "bfloat16" else 4)
    products = [PackedProduct(max(rows), wide, out, precision, activation) for _ in range(1 + MEMORY // weight_bytes)]
    for count in rows:
        for product in products:
            product.args.rows = count
        turn = itertools.cycle(products)
        sides = [Windows("warm", products[0]), Windows("cold", lambda turn=turn: next(turn)())]
        harness.take_turns(sides, rounds, window_s=0.03)
        result = {"layer": f"{wide} x {out} {activation}", "dtype": precision, "rows": count}
        for side in sides:
            rate, read = products[0].flops() / side.median / 1e9, weight_bytes / side.median / 1e9
            result |= {
                f"{side.name}, us": round(1e6 * side.median, 1),
                f"{side.name}, GFLOP/s (share)": f"{rate:.1f} ({rate / ceiling:.2f})",
                f"{side.name}, GB/s (share)": f"{read:.1f} ({read / copy_rate:.2f})",
            }
        yield result


def main():
    parser = harness.options(__doc__, rounds=5)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 2, 4, 8, 15, 16, 32, 64, 128])
    given = parser.parse_args()
    import torch

    source, target = torch.ones(2, MEMORY // 4).unbind()
    copy = Windows("copy", lambda: target.copy_(source), amount=2 * MEMORY)
    results = []
    for precision in ("float32", "bfloat16"):
        large = PackedProduct(1024, 768, 3072, precision)
        many = Windows("1024 rows", large, amount=large.flops())
        harness.take_turns([copy, many], given.rounds, window_s=0.03)
        ceiling, copy_rate = 1e-9 / many.median, 1e-9 / copy.median
        print(f"{precision}: 1024 rows {ceiling:.0f} GFLOP/s, copy {copy_rate:.1f} GB/s", flush=True)
        for layer in LAYERS:
            results += harness.shown(times(precision, layer, given.rows, given.rounds, ceiling, copy_rate))
    harness.finish(given, results, {})
    print(tables.of_dicts(results))


if __name__ == "__main__":
    main()
