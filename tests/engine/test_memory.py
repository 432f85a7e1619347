"""How much memory an open model takes: its weights once, in the order that products read them, and no copy of the file.

In a process of its own for each case, because memory that a library keeps would count for the next one.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers

from rotary_decoders import make_decoder, write_gguf

VOCABULARY, HIDDEN = 8000, 512
TESTS = Path(__file__).resolve().parents[1]
SHARE = 1.15  # of the size of the weights
OPEN = """
import sys
from rf_engine import Engine

def memory(key):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))

ids = [[5, 6, 7]]
small = Engine(sys.argv[1], precision=sys.argv[3], head="none")
small.hidden(ids)
before = memory("VmRSS")
large = Engine(sys.argv[2], precision=sys.argv[3], head="none")
large.hidden(ids)
print(memory("VmRSS") - before, memory("VmHWM") - before)
"""


def save(folder, layers):
    torch.manual_seed(0)
    sizes = dict(vocab_size=VOCABULARY, hidden_size=HIDDEN, num_hidden_layers=layers, num_attention_heads=8)
    config = transformers.RoFormerConfig(**sizes, intermediate_size=2048, max_position_embeddings=64)
    transformers.RoFormerModel(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return [save(folder / str(layers), layers) for layers in (1, 8)]


# Without instructions for products of bfloat16, packed weights are floats.
PAIRS = "avx512_bf16" in Path("/proc/cpuinfo").read_text()


def memory_of(small, large, precision):
    """What the large model takes, at rest and at most."""
    environment = dict(os.environ, PYTHONPATH=str(TESTS), OMP_NUM_THREADS="1")
    command = [sys.executable, "-c", OPEN, str(small), str(large), precision]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=300)
    return map(int, done.stdout.split())


@pytest.mark.parametrize(("precision", "share"), [("float32", 1), ("bfloat16", 0.5 if PAIRS else 1)])
def test_weights_are_in_memory_once(models, precision, share):
    resident, largest = memory_of(*models, precision)
    size = (models[1] / "model.safetensors").stat().st_size
    vocabulary = VOCABULARY * HIDDEN * 4  # whose rows are read from the file when they are needed
    assert 0.9 * share * (size - vocabulary) < resident < SHARE * share * (size - vocabulary)
    # While the model is opened, one tensor of the file is in memory too.
    assert largest < SHARE * share * (size - vocabulary) + vocabulary


def test_experts_stay_as_they_are_stored(tmp_path):
    small, large = tmp_path / "small.gguf", tmp_path / "large.gguf"
    sizes = {"hidden_size": 256, "moe_intermediate_size": 256, "num_local_experts": 32}
    for layers, path in ((1, small), (4, large)):
        write_gguf(make_decoder("qwen3_moe", num_hidden_layers=layers, **sizes), path, "Q4_0", experts="Q4_0")
    resident, _ = memory_of(small, large, "float32")
    size = large.stat().st_size
    assert 0.7 * size < resident < SHARE * size
