"""Parts of roformer_cpp.onnx_export."""
