"""bench/busy_machine.py: what its table says of speeds that are known."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import busy_machine


def test_a_count_is_compared_with_the_best_of_its_round_and_state():
    speeds = {
        ("training", 0, "idle"): [90.0, 200.0, 95.0],
        ("training", 3000, "idle"): [100.0, 100.0, 100.0],
        ("training", 0, "busy"): [50.0, 50.0, 50.0],
        ("training", 3000, "busy"): [40.0, 40.0, 40.0],
    }
    speeds |= {("inference", *rest): values for (_, *rest), values in speeds.items()}
    shares = busy_machine.relative(speeds)
    assert shares["training", 0, "idle"] == 0.95 and shares["training", 3000, "idle"] == 1
    assert shares["inference", 0, "busy"] == 1 and shares["inference", 3000, "busy"] == 0.8
    titles, at_once, spinning = busy_machine.table(speeds)
    assert titles == ["spin count", "training, idle", "training, busy", "inference, idle", "inference, busy"]
    assert at_once == ["0", *["0.95 (95)", "1.00 (50)"] * 2] and spinning[:2] == ["3000", "1.00 (100)"]
