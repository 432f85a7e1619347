"""Packed linear layers of core (core/include/rf/linear.h) called by ctypes."""

import ctypes
import os
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = Path(os.environ.get("ROFORMER_BUILD_DIR", ROOT / "build" / "release")) / "lib/libroformer_core.so"
DTYPES = {"float32": 1, "bfloat16": 3, "int8": 1}  # of x and y
OK = 0


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


class PackedProduct:
    """y = x W^T of random numbers; a call computes it again."""

    def __init__(self, rows, columns_in, columns_out, precision):
        self.lib = ctypes.CDLL(str(LIBRARY))
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
                weight, x = (self.rounded(a) for a in (weight, x))
            arguments = (ctypes.c_void_p(weight.ctypes.data), ctypes.c_int64(columns_in), ctypes.byref(packed))
            status = self.lib.rf_linear_pack(DTYPES[precision], *shape, *arguments)
        if status != OK:
            raise RuntimeError(f"packing for {precision} failed")
        self.x, self.y = x, np.zeros((rows, columns_out), x.dtype)
        self.args = LinearArgs(struct_size=ctypes.sizeof(LinearArgs), dtype=DTYPES[precision], rows=rows)
        self.args.in_, self.args.out, self.args.packed = columns_in, columns_out, packed
        self.args.x, self.args.x_stride = x.ctypes.data, columns_in
        self.args.y, self.args.y_stride = self.y.ctypes.data, columns_out

    @staticmethod
    def rounded(x):
        """Bits of bfloat16, rounded to nearest even."""
        bits = x.view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)

    def __call__(self):
        if self.lib.rf_linear_forward(ctypes.byref(self.args)) != OK:
            raise RuntimeError("the product failed")
        return self.y
