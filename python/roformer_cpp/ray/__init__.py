"""The package on a cluster of Ray: vectors and token shards of a ray.data.Dataset, pretraining, and
`roformer serve` as an application of Ray Serve (docs/ray.md).

    vectors = roformer_cpp.ray.embed(ray.data.read_parquet("texts"), "path/to/model", actors=4)

Needs the extra `ray` (pip install 'roformer-cpp[ray]'), which is loaded when a function is called.
"""

from ._embed import embed
from ._prepare import prepare
from ._serve import serve
from ._train import train

__all__ = ["embed", "prepare", "serve", "train"]
