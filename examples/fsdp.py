"""Trains a causal model whose parameters are divided among processes by PyTorch's FSDP2.

    torchrun --nproc-per-node 2 examples/fsdp.py

Without torchrun one process trains alone, with the same losses up to rounding.
"""

import os

import roformer_cpp  # before torch

import torch  # isort: skip
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

STEPS, ROWS, TOKENS, WIDTH, HEADS, LAYERS, VOCABULARY = 20, 8, 32, 64, 4, 3, 100


class Encoder(nn.Module):
    """Predicts the next number of a sequence."""

    def __init__(self):
        super().__init__()
        rope = roformer_cpp.encoding("rope", num_attention_heads=HEADS, head_dim=WIDTH // HEADS)
        self.embeddings = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(
            roformer_cpp.EncoderLayer(WIDTH, HEADS, rope, is_causal=True, norm="pre") for _ in range(LAYERS)
        )
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids):
        x = self.embeddings(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def main():
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size > 1:
        dist.init_process_group("gloo")
    rank = dist.get_rank() if size > 1 else 0
    torch.manual_seed(0)  # the same weights and rows on every process
    model = Encoder()
    if size > 1:
        for layer in model.layers:
            fully_shard(layer)
        fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(STEPS):
        start = torch.randint(VOCABULARY, (ROWS, 1))
        ids = (start + 7 * torch.arange(TOKENS + 1)) % VOCABULARY
        own = ids[rank * ROWS // size : (rank + 1) * ROWS // size]
        loss = nn.functional.cross_entropy(model(own[:, :-1]).flatten(0, 1), own[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach()
        if size > 1:
            dist.all_reduce(mean)
        if rank == 0:
            print(f"step {step + 1}  loss {float(mean) / size:.6f}")
    if size > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
