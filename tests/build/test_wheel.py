"""What pyproject.toml and the package say of themselves; scripts/check_wheel.sh builds a wheel and uses it."""

import re

import pytest

from cli_support import ROOT

tomllib = pytest.importorskip("tomllib", reason="needs Python 3.11")


@pytest.fixture(scope="module")
def settings():
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def versions(path):
    """{package: version} of a file of requirements."""
    return dict(re.findall(r"^([\w-]+)==([\w.]+)", path.read_text(encoding="utf-8"), re.MULTILINE))


def test_one_range_of_torch(settings):
    probe = (ROOT / "cmake" / "torch_probe.cmake").read_text(encoding="utf-8")
    first, last = re.search(r'torch_versions "2\.(\d+) to 2\.(\d+)"', probe).groups()
    assert settings["project"]["optional-dependencies"]["torch"] == [f"torch>=2.{first},<2.{int(last) + 1}"]
    hint = (ROOT / "python" / "roformer_cpp" / "_torch.py").read_text(encoding="utf-8")
    assert f"2.{first} to 2.{last}" in hint


def test_a_wheel_has_the_dictionary_of_the_checkout(settings):
    assert f"jieba=={versions(ROOT / 'requirements.txt')['jieba']}" in settings["build-system"]["requires"]


def test_the_program_of_a_package_without_one_is_named(tmp_path, monkeypatch):
    from roformer_cpp import _program

    monkeypatch.setattr(_program, "__file__", str(tmp_path / "_program.py"))
    with pytest.raises(
        SystemExit, match=r"^\[program\] .*bin/roformer must be the program of the package, got: No such"
    ):
        _program.main()
