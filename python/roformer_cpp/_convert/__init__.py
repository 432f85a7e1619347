"""Parts of roformer_cpp.convert."""
