"""The operators on GPUs: Triton kernels, and calls of ATen where those are as good. ``library`` registers them."""
