"""Rotary position embedding and RoFormer in C++, as PyTorch operators.

    import roformer_cpp

    q = roformer_cpp.rope(q, positions, layout="pairs")

The operators are also ``torch.ops.roformer.rope``, ``rope_``, ``rotate``, ``rope_table`` and ``dropout``; they have
gradients of any order and work under ``torch.compile``. So do, with first gradients, ``norm``, ``gelu``, ``softmax``,
``cross_entropy`` and ``linear``, for float32, bfloat16 and float16 on the CPU (ops/include/rf/ops/rows.h).

On a machine with other work, import it before torch: OpenMP's idle threads then spin for a short time only, unless
OMP_WAIT_POLICY or GOMP_SPINCOUNT is set. If torch is imported first, set GOMP_SPINCOUNT=10000 yourself.
"""

from . import _openmp

_openmp.load_torch()

from . import _library  # noqa: E402 - it imports torch

_has_models = _library.load()

from ._ops import (  # noqa: E402 - the operators exist once the library is loaded
    memory_held,
    release_memory,
    rope,
    rope_table,
    rotate,
    set_target,
    target,
)

__all__ = ["memory_held", "release_memory", "rope", "rope_table", "rotate", "set_target", "target"]
__version__ = "0.1.0"

if _has_models:
    from .attention import attention
    from .encoding import combine_encodings, encoding, encodings
    from .linear_attention import (
        LinearAttention,
        LinearAttentionState,
        linear_attention,
        linear_feature_dim,
        orthogonal_features,
    )
    from .model import bake, build_model, load_model
    from .terms import DistanceTable, Rotation, Terms

    __all__ += ["DistanceTable", "Rotation", "Terms", "attention", "bake", "build_model", "load_model"]
    __all__ += ["combine_encodings", "encoding", "encodings"]
    __all__ += ["LinearAttention", "LinearAttentionState", "linear_attention", "linear_feature_dim"]
    __all__ += ["orthogonal_features"]
