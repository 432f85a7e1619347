"""ONNX files for the benchmarks: one operator, run with ONNX Runtime, and models of transformers."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor


class LeftOut(Exception):
    """ONNX Runtime is missing, or lacks the kernel; states the reason."""


def operator(name: str, domain: str, inputs: list[Tensor | None], result: Tensor, **attributes) -> Callable[[], None]:
    """A call that computes the operator of torch's tensors, and into one, in place, on as many threads as torch; idle
    threads sleep. domain: "" for ai.onnx."""
    try:
        import onnxruntime
        from onnx import TensorProto, helper
    except ImportError as error:
        raise LeftOut(str(error)) from error
    elements = {torch.float32: TensorProto.FLOAT, torch.bfloat16: TensorProto.BFLOAT16, torch.int64: TensorProto.INT64}
    given = {f"x{i}": tensor for i, tensor in enumerate(inputs) if tensor is not None}

    def info(label, tensor):
        return helper.make_tensor_value_info(label, elements[tensor.dtype], list(tensor.shape))

    names = [f"x{i}" if tensor is not None else "" for i, tensor in enumerate(inputs)]
    node = helper.make_node(name, names, ["y"], domain=domain, **attributes)
    graph = helper.make_graph([node], "one", [info(*pair) for pair in given.items()], [info("y", result)])
    opsets = [helper.make_opsetid("", 23)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its error types are not public
        raise LeftOut(str(error).strip().splitlines()[-1]) from error
    binding = session.io_binding()
    for label, tensor in given.items():
        binding.bind_input(label, "cpu", 0, elements[tensor.dtype], list(tensor.shape), tensor.data_ptr())
    binding.bind_output("y", "cpu", 0, elements[result.dtype], list(result.shape), result.data_ptr())

    def call(keep=(given, result)):
        session.run_with_iobinding(binding)

    return call


def export(model_dir: Path | str, path: Path, inputs: list[str]) -> None:
    """Exports the hidden states of an encoder of transformers as a function of `inputs`, of any shape."""
    import transformers

    class Hidden(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = transformers.AutoModel.from_pretrained(model_dir, attn_implementation="eager")

        def forward(self, *given):
            return self.body(**dict(zip(inputs, given, strict=True))).last_hidden_state

    samples = {"input_ids": 1, "attention_mask": 1, "token_type_ids": 0}
    torch.onnx.export(
        Hidden().eval(),
        tuple(torch.full((2, 16), samples[name]) for name in inputs),
        str(path),
        input_names=inputs,
        output_names=["hidden"],
        dynamic_axes={name: {0: "batch", 1: "tokens"} for name in [*inputs, "hidden"]},
        opset_version=17,
        dynamo=False,
    )
