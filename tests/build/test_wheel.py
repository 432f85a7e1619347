"""What pyproject.toml and the package say of themselves; scripts/check_wheel.sh builds a wheel and uses it."""

import re

import pytest

from cli_support import ROOT


def test_versions_of_torch_and_jieba():
    project, probe, hint, required = (
        (ROOT / name).read_text(encoding="utf-8")
        for name in ("pyproject.toml", "cmake/torch_probe.cmake", "python/roformer_cpp/_torch.py", "requirements.txt")
    )
    first, last = re.search(r'torch_versions "2\.(\d+) to 2\.(\d+)"', probe).groups()
    assert f'torch = ["torch>=2.{first},<2.{int(last) + 1}"]' in project and f"2.{first} to 2.{last}" in hint
    assert f'"{re.search(r"^jieba==.*$", required, re.MULTILINE)[0]}"' in project


def test_the_program_of_a_package_without_one_is_named(tmp_path, monkeypatch):
    from roformer_cpp import _program

    monkeypatch.setattr(_program, "__file__", str(tmp_path / "_program.py"))
    with pytest.raises(SystemExit, match=r"^\[program\] .*bin/roformer must be the program of the package, got: No"):
        _program.main()
