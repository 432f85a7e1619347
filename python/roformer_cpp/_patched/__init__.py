"""The replacements that roformer_cpp.patch puts into models of transformers. These modules import transformers."""
