"""A graph of ONNX that is written node by node. Values are names; node names are paths, such as "layer.0/attention"."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# The version of the file format that came with the operators, so that runtimes of their time open it.
IR_VERSIONS = {17: 8, 23: 11}
LARGEST_FLOAT = float(np.finfo(np.float32).max)
# Tensors in a second file begin at a multiple of the one, so that runtimes can map it; smaller ones stay in the first.
_PAGE_BYTES, _MIN_BYTES = 4096, 1024


class Graph:
    def __init__(self, opset: int):
        self.opset = opset
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, np.ndarray] = {}
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._scope: list[str] = []
        self._used: dict[str, int] = {}

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        self._scope.append(name)
        yield
        self._scope.pop()

    def _unique(self, name: str) -> str:
        count = self._used[name] = self._used.get(name, 0) + 1
        return name if count == 1 else f"{name}_{count}"

    def op(self, kind: str, *inputs: str, **attributes: object) -> str:
        """The first output of a node."""
        name = self._unique("/".join([*self._scope, kind]))
        self._nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def constant(self, name: str, array: np.ndarray) -> str:
        """An initializer, which keeps its name; the first of a name is used for all."""
        if name not in self._constants:
            self._constants[name] = np.asarray(array, order="C")
        return name

    @property
    def constant_bytes(self) -> int:
        return sum(array.nbytes for array in self._constants.values())

    def number(self, value: float) -> str:
        """A float32 scalar."""
        return self.constant(f"number {value!r}", np.array(value, np.float32))

    def ints(self, *values: int) -> str:
        """int64 [values]"""
        return self.constant("ints " + " ".join(map(str, values)), np.array(values, np.int64))

    def integer(self, value: int) -> str:
        """An int64 scalar."""
        return self.constant(f"integer {value}", np.array(value, np.int64))

    def input(self, name: str, shape: list[str | int]) -> str:
        self._inputs.append(helper.make_tensor_value_info(name, TensorProto.INT64, shape))
        return name

    @property
    def output_names(self) -> list[str]:
        return [output.name for output in self._outputs]

    def output(self, name: str, value: str, shape: list[str | int]) -> None:
        self._nodes.append(helper.make_node("Identity", [value], [name], name=f"output/{name}"))
        self._outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))

    # ---- operators that the two versions of the operator set spell differently, or that are used everywhere

    def cast(self, x: str, to: int) -> str:
        return self.op("Cast", x, to=to)

    def unsqueeze(self, x: str, *axes: int) -> str:
        return self.op("Unsqueeze", x, self.ints(*axes))

    def reshape(self, x: str, *shape: int) -> str:
        return self.op("Reshape", x, self.ints(*shape))

    def slice(self, x: str, axis: int, start: int, end: int, step: int = 1) -> str:
        return self.op("Slice", x, self.ints(start), self.ints(end), self.ints(axis), self.ints(step))

    def reduce(self, kind: str, x: str, axis: int, *, keep: bool = False) -> str:
        if self.opset >= 18 or kind == "ReduceSum":
            return self.op(kind, x, self.ints(axis), keepdims=int(keep))
        return self.op(kind, x, axes=[axis], keepdims=int(keep))

    def gelu(self, x: str, *, tanh: bool) -> str:
        if self.opset >= 20:
            return self.op("Gelu", x, approximate="tanh" if tanh else "none")
        half = self.op("Mul", x, self.number(0.5))
        if tanh:
            cubed = self.op("Mul", self.op("Mul", self.op("Mul", x, x), x), self.number(0.044715))
            inner = self.op("Mul", self.op("Add", x, cubed), self.number((2 / np.pi) ** 0.5))
            curve = self.op("Tanh", inner)
        else:
            curve = self.op("Erf", self.op("Mul", x, self.number(0.5**0.5)))
        return self.op("Mul", half, self.op("Add", curve, self.number(1.0)))

    def activation(self, x: str, name: str) -> str:
        """By the names of config.json's hidden_act, as this library writes them."""
        if name in ("gelu", "gelu_new"):
            return self.gelu(x, tanh=name == "gelu_new")
        if name == "silu":
            return self.op("Mul", x, self.op("Sigmoid", x))
        if name == "relu2":
            positive = self.op("Relu", x)
            return self.op("Mul", positive, positive)
        return self.op({"relu": "Relu", "tanh": "Tanh"}[name], x)

    def linear(self, x: str, name: str, weight: np.ndarray, bias: np.ndarray | None) -> str:
        """x weight^T + bias"""
        y = self.op("MatMul", x, self.constant(f"{name}.weight.transposed", weight.T))
        return y if bias is None else self.op("Add", y, self.constant(f"{name}.bias", bias))

    def save(self, path: Path, name: str, version: str, properties: dict[str, str], *, external: bool) -> None:
        """Writes the file, and with ``external`` a second one with ``.data`` at its end, which has the constants."""
        tensors = (
            self._external(path) if external else [numpy_helper.from_array(v, k) for k, v in self._constants.items()]
        )
        graph = helper.make_graph(self._nodes, name, self._inputs, self._outputs, initializer=tensors)
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", self.opset)],
            producer_name="roformer_cpp",
            producer_version=version,
            ir_version=IR_VERSIONS[self.opset],
        )
        helper.set_model_props(model, properties)
        path.write_bytes(model.SerializeToString())

    def _external(self, path: Path) -> list[onnx.TensorProto]:
        """Not by onnx's own writer, whose graph must hold all bytes, and holds less than 2 GiB."""
        tensors = []
        location = path.with_name(f"{path.name}.data")
        with location.open("wb") as file:
            for name, array in self._constants.items():
                if array.nbytes < _MIN_BYTES:
                    tensors.append(numpy_helper.from_array(array, name))
                    continue
                file.write(bytes(-file.tell() % _PAGE_BYTES))
                kind = helper.np_dtype_to_tensor_dtype(array.dtype)
                tensor = TensorProto(name=name, data_type=kind, dims=array.shape, data_location=TensorProto.EXTERNAL)
                for key, value in (("location", location.name), ("offset", file.tell()), ("length", array.nbytes)):
                    tensor.external_data.add(key=key, value=str(value))
                array.tofile(file)
                tensors.append(tensor)
        return tensors
