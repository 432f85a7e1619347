"""--device: what it refuses, the CPU, and the start inside Python, which a GPU needs."""

import sys

import pytest

from cli_support import PROGRAM, metrics, pretrain, refused, results, run, run_file
from training_case import same_model

NOT_THERE = "PyTorch sees 0 GPUs"
COMMANDS = {
    "pretrain": ["--config", "c", "--data", "d", "--output", "o"],
    "compare": ["--encodings", "none", "--data", "d", "--output", "o"],
    "finetune": ["--task", "tokens", "--model", "m", "--train", "t", "--valid", "v", "--output", "o"],
    "train-translation": ["--config", "c", "--train", "a", "b", "--tokenizer", "t", "--output", "o"],
}


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_device_that_is_not_there(command):
    message = refused(command, *COMMANDS[command], "--device", "cuda:3")
    assert message == f"[{command}] --device must be auto or cpu, got cuda:3; {NOT_THERE}\n"


@pytest.mark.parametrize("given", ["gpu", "cuda:", "cuda:-1", "cuda:x", "cuda:12345678901234567890", "CPU", "mps"])
def test_other_words(given):
    message = refused("pretrain", *COMMANDS["pretrain"], "--device", given)
    rule = "auto, cpu, cuda or cuda:<number>"
    assert message == f'[pretrain] --device must be {rule}, got "{given}"; {NOT_THERE}\n'


def test_under_torchrun_each_process_has_its_gpu(monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "2")
    message = refused("pretrain", *COMMANDS["pretrain"], "--device", "cuda:0")
    assert message.startswith("[pretrain] --device must be auto, cpu or cuda under torchrun, which gives each process")
    message = refused("pretrain", *COMMANDS["pretrain"], "--device", "cuda")
    assert message == f"[pretrain] --device must be auto or cpu, got cuda:2 of LOCAL_RANK 2; {NOT_THERE}\n"


def test_auto_is_the_cpu_without_a_gpu(prepared, tmp_path):
    config, auto, cpu = run_file(tmp_path / "run.json"), tmp_path / "auto", tmp_path / "cpu"
    results(*pretrain(prepared, config, auto))
    results(*pretrain(prepared, config, cpu), "--device", "cpu")
    assert metrics(auto) == metrics(cpu) and same_model(auto, cpu)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_gpu_is_used_inside_python(command, tmp_path, monkeypatch):
    library = PROGRAM.parent / "tests" / "libemulated_gpu.so"
    if not library.exists():
        pytest.skip("NOT TESTED: the target rf_emulated_gpu is not built")
    python = tmp_path / "python"
    python.write_text(f'#!{sys.executable}\nimport sys; print("\\n".join(sys.argv[1:]))\n')
    python.chmod(0o755)
    monkeypatch.setenv("LD_PRELOAD", str(library))
    monkeypatch.setenv("ROFORMER_PYTHON", str(python))
    words = [command, *COMMANDS[command], "--device", "auto"]
    done = run(*words)
    module = "roformer_cpp." + command.replace("-", "_")
    assert done.stdout.splitlines() == ["-m", module, *words[1:]], done.stderr
    said = f"cuda:0 is used inside Python, which has its kernels: {python} -m {module} "
    assert done.stderr == said + "($ROFORMER_PYTHON names another Python)\n"
    monkeypatch.setenv("ROFORMER_PYTHON", str(tmp_path / "none"))
    assert f"[{command}] --device cuda:0 needs Python with the package roformer_cpp, got" in refused(*words)
