"""A small attention layer for encodings' tests: raw inputs and weights, for loops written from papers' equations."""

from collections.abc import Callable

import numpy as np
import torch

import roformer_cpp
from roformer_cpp.encoding import Encoding
from tolerances import T1_ATOL, T1_RTOL, T4_MAX

Score = Callable[[int, int, int, int], float]  # of row b, head h, query m and key n
Value = Callable[[int, int, int, int], np.ndarray]

# Of models that take no time, with two rows for them.
TINY_MODEL = {"vocab_size": 37, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
TINY_MODEL |= {"intermediate_size": 20, "max_position_embeddings": 32}
TINY_IDS = torch.arange(1, 19).view(2, 9)


class Case:
    """Inputs ``x`` [B,T,C] (and ``y`` [B,S,C] for keys) with projections [H*D,C] and biases, all float64 N(0, 1)."""

    def __init__(self, *, batch=2, tokens=7, keys=None, heads=2, head_dim=4, width=6, seed=0):
        draw = np.random.default_rng(seed).standard_normal
        self.heads, self.head_dim, self.width = heads, head_dim, width
        self.x = draw((batch, tokens, width))
        self.y = self.x if keys is None else draw((batch, keys, width))
        self.w_q, self.w_k, self.w_v = draw((3, heads * head_dim, width))
        self.b_q, self.b_k, self.b_v = draw((3, heads * head_dim))

    def encoding(self, name: str, **config) -> Encoding:
        """In float64, all parameters drawn from N(0, 0.5^2): small initial values hide mistakes."""
        shape = {"num_attention_heads": self.heads, "head_dim": self.head_dim, "hidden_size": self.width}
        encoding = roformer_cpp.encoding(name, **shape, **config).double()
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in encoding.parameters():
                parameter.normal_(0, 0.5, generator=generator)
        return encoding

    def head(self, rows: np.ndarray, h: int) -> np.ndarray:
        """Head h's part of ``[H*D, ..]``."""
        return rows[h * self.head_dim : (h + 1) * self.head_dim]

    def q(self, b: int, m: int, h: int) -> np.ndarray:
        return self.head(self.w_q @ self.x[b, m] + self.b_q, h)

    def k(self, b: int, n: int, h: int) -> np.ndarray:
        return self.head(self.w_k @ self.y[b, n] + self.b_k, h)

    def v(self, b: int, n: int, h: int) -> np.ndarray:
        return self.head(self.w_v @ self.y[b, n] + self.b_v, h)

    def product(self, b: int, h: int, m: int, n: int) -> float:
        """q.k / sqrt(D)."""
        return self.q(b, m, h) @ self.k(b, n, h) / np.sqrt(self.head_dim)

    def loops(self, score: Score, value: Value | None = None, *, causal=False) -> np.ndarray:
        """sum_n softmax_n(score(b, h, m, n)) v_n for every b, m and h, [B,T,H,D]."""
        value = value or (lambda b, h, m, n: self.v(b, n, h))
        (batch, tokens, _), keys = self.x.shape, self.y.shape[1]
        out = np.zeros((batch, tokens, self.heads, self.head_dim))
        for b, m, h in np.ndindex(batch, tokens, self.heads):
            seen = range(m + keys - tokens + 1) if causal else range(keys)
            scores = np.array([score(b, h, m, n) for n in seen])
            weights = np.exp(scores - scores.max())
            weights /= weights.sum()
            out[b, m, h] = weights @ np.array([value(b, h, m, n) for n in seen])
        return out

    def qkv(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        def project(x, w, b):
            return torch.from_numpy(x @ w.T + b).unflatten(-1, (self.heads, self.head_dim))

        return (
            project(self.x, self.w_q, self.b_q),
            project(self.y, self.w_k, self.b_k),
            project(self.y, self.w_v, self.b_v),
        )

    def projections(self) -> tuple[torch.Tensor, ...]:
        return tuple(torch.from_numpy(a) for a in (self.w_q, self.w_k, self.w_v, self.b_q, self.b_k, self.b_v))

    def attention(self, encoding: Encoding, positions, key_positions=None, *, layer=0, causal=False, sequences=None):
        """The same by the product, [B,T,H,D] as an array; sequences: number of each key's."""
        positions = torch.as_tensor(positions)
        key_positions = positions if key_positions is None else torch.as_tensor(key_positions)
        q, k, v = self.qkv()
        rules = {"positions": positions, "key_positions": key_positions, "is_causal": causal}
        if sequences is not None:
            sequences = torch.as_tensor(sequences)
            rules["mask"] = (sequences[-q.shape[1] :, None] == sequences)[None, None]
            sequences = sequences[None]
        terms = encoding.terms(
            positions,
            key_positions,
            layer=layer,
            sequences=sequences,
            projections=self.projections(),
            hidden_states=torch.from_numpy(self.y),
            queries=q,
            keys=k,
            dtype=torch.float64,
        )
        return roformer_cpp.attention(q, k, v, terms, **rules).detach().numpy()

    def check(self, encoding, score, positions, key_positions=None, *, value=None, causal=False, **options) -> None:
        """The product's output is that of the loops."""
        ours = self.attention(encoding, positions, key_positions, causal=causal, **options)
        np.testing.assert_allclose(ours, self.loops(score, value, causal=causal), atol=T1_ATOL, rtol=T1_RTOL)


def perturbed(model, seed=3):
    """Weights moved by N(0, 0.3): attention is not uniform, and no table is zero."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for each in model.parameters():
            each.add_(0.3 * torch.randn(each.shape, generator=generator))
    return model


def assert_same(ours: torch.Tensor, expected: torch.Tensor) -> None:
    """Results of two models in float32."""
    assert ours.shape == expected.shape
    assert (ours - expected).abs().max() <= T4_MAX * expected.abs().max()


def parameter(encoding: Encoding, name: str) -> np.ndarray:
    return encoding.get_parameter(name).detach().numpy()
