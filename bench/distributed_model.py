"""The cost model of docs/distributed.md for the paper's first pretraining stage on 8 to 1024 GPUs or CPU nodes.

    python bench/distributed_model.py

A step of RoFormer-base has 256 rows of 512 tokens (the paper's Table 4, stage 1). The speeds of a worker and of its
network, in the table's heads, are assumed, not measured; the first number of each is half of the maker's figure.
"""

from dataclasses import dataclass

PARAMETERS = 124e6  # of RoFormer-base with a vocabulary of 50,000
PRODUCTS = 86e6 + 0.15 * 38e6  # weights that a token is multiplied with: the body, and the head for the masked 15 %
HEADS_WIDTH, LAYERS = 768, 12
ROWS, LENGTH = 256, 512


@dataclass(frozen=True)
class Worker:
    name: str
    flops: float  # per second, of large bfloat16 products
    share: float  # share that training reaches
    bytes_per_second: float  # of its network, one direction
    latency: float  # seconds per message


WORKERS = (
    Worker("GPU: 500 TFLOP/s, 400 Gb/s, 5 us", 500e12, 0.5, 50e9, 5e-6),
    Worker("CPU node of 64 cores: 10 TFLOP/s, 100 Gb/s, 10 us", 10e12, 0.65, 12.5e9, 10e-6),
)


def flops_per_token():
    """Forward and backward: 6 per weight, and attention's two products, whose 2 T H D each is tripled too."""
    return 6 * PRODUCTS + 3 * LAYERS * 2 * 2 * LENGTH * HEADS_WIDTH


def step(worker, workers, bytes_per_number=4):
    """Seconds of the passes, of the sum of gradients by a ring, and of its exposed part."""
    compute = ROWS * LENGTH / workers * flops_per_token() / (worker.flops * worker.share)
    sent = 2 * (workers - 1) / workers * PARAMETERS * bytes_per_number
    communication = 2 * (workers - 1) * worker.latency + sent / worker.bytes_per_second
    return compute, communication, communication - min(communication, 2 / 3 * compute)


def main():
    for worker in WORKERS:
        print(f"\n{worker.name}\n")
        print("| workers | rows of each | compute, ms | sum, ms | exposed, ms | efficiency | the same in bfloat16 |")
        print("|---|---|---|---|---|---|---|")
        for workers in (8, 16, 32, 64, 128, 256, 512, 1024):
            if workers > ROWS:
                print(f"| {workers} | below 1 | | | | | more workers than rows: the batch has to grow |")
                continue
            times = [step(worker, workers, width) for width in (4, 2)]
            efficiency = [compute / (compute + exposed) for compute, _, exposed in times]
            compute, communication, exposed = (1e3 * x for x in times[0])
            print(
                f"| {workers} | {ROWS // workers} | {compute:.1f} | {communication:.1f} | {exposed:.1f} "
                f"| {efficiency[0]:.2f} | {efficiency[1]:.2f} |"
            )


if __name__ == "__main__":
    main()
