"""What roformer_cpp.patch puts into models of transformers, which these modules import."""
