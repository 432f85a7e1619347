"""Packages of the program: the .deb and the archive of scripts/package.sh, the units of systemd, and the image."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import server_case
from cli_support import PROGRAM, ROOT
from sentence_model import TEXTS, save_sentences

pytestmark = pytest.mark.slow
PACKAGING = ROOT / "packaging"
# What makes a package, in addition to the packages of scripts/setup.sh.
FOR_PACKAGES = {"dpkg-dev", "file", "python3-jieba"}
# Packages of gcr.io/distroless/cc-debian12.
DISTROLESS = ["base-files", "ca-certificates", "libc6", "libgcc-s1", "libgomp1", "libssl3", "libstdc++6", "tzdata"]
OTHER_LIBRARIES = {"libfmt", "libhwy", "libz", "libzstd"}  # that Dockerfile adds
MOST_BYTES = 80e6


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=3000, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def needs(*programs):
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"NOT TESTED: {program} is not installed")


@pytest.fixture(scope="module")
def packages():
    needs("cpack", "dpkg-shlibdeps", "file", "ninja")
    deb, archive = map(str, run(ROOT / "scripts" / "package.sh", env=dict(os.environ, JOBS="2")).split())
    return deb, archive


@pytest.fixture(scope="module")
def root(packages, tmp_path_factory):
    folder = tmp_path_factory.mktemp("root")
    run("dpkg", "-x", packages[0], folder)
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    return save_sentences(folder)


def test_what_the_deb_needs_and_has(packages, root):
    facts = run("dpkg", "--info", packages[0])
    depends = re.search(r"Depends: (.*)", facts)[1]
    assert {word.split()[0] for word in depends.split(", ")} == {
        *("libc6", "libfmt9", "libgcc-s1", "libgomp1", "libhwy1", "libssl3", "libstdc++6", "libzstd1", "zlib1g")
    }
    assert "Package: roformer\n" in facts and "Version: 0.1.0\n" in facts and "Architecture: " in facts
    names = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    documents = {"LICENSE", "copyright", *(f"examples/{path.name}" for path in (PACKAGING / "examples").iterdir())}
    assert {f"usr/share/doc/roformer/{name}" for name in documents} <= names
    assert {"usr/bin/roformer", "usr/share/roformer/dict.txt"} <= names
    assert {f"usr/lib/systemd/system/roformer.{kind}" for kind in ("service", "socket")} <= names
    assert not [name for name in names if re.search(r"\.(h|a|cmake|pc)$|torch|arrow|training", name)]


def vectors(program, model):
    texts = "\n".join(TEXTS)
    output = model / "out.npy"
    command = [program, "embed", "--model", model, "--input", "-", "--output", output, "--overwrite"]
    subprocess.run([str(word) for word in command], input=texts, text=True, check=True, env={}, capture_output=True)
    return np.load(output)


def test_the_program_of_the_deb(root, model, monkeypatch):
    program = root / "usr" / "bin" / "roformer"
    expected = vectors(PROGRAM, model)
    assert vectors(program, model).tobytes() == expected.tobytes()
    monkeypatch.setattr(server_case, "PROGRAM", program)
    with server_case.serving("--model", model) as server:
        assert np.array_equal(np.array(server.post("/embed", {"inputs": TEXTS}), np.float32), expected)
    assert not re.search(r"not found|python|torch", run("ldd", *root.glob("usr/lib/*/roformer/libroformer_cli.so")))


def test_the_archive(packages, tmp_path):
    run("tar", "-xzf", packages[1], "-C", tmp_path)
    (program,) = tmp_path.glob("*/bin/roformer")
    assert run(program, "--version", env={}).strip() == "roformer 0.1.0"


def test_units(root, tmp_path):
    needs("systemd-analyze")
    units = [tmp_path / f"roformer.{kind}" for kind in ("service", "socket")]
    for unit in units:
        text = (root / "usr/lib/systemd/system" / unit.name).read_text()
        unit.write_text(text.replace("/usr/bin/roformer", f"{root}/usr/bin/roformer"))
    command = ["systemd-analyze", "verify", "--man=no", *units]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    # Tenths of systemd's scale from 0 to 10, where 2 is "ok".
    run("systemd-analyze", "security", "--offline=yes", "--threshold=15", units[0])


def test_options_of_the_unit(root):
    """Are options of the command: it is the model that is missing."""
    unit = (root / "usr/lib/systemd/system/roformer.service").read_text()
    options = re.search(r'ROFORMER_OPTIONS=(.*)"', unit)[1].split()
    done = subprocess.run([PROGRAM, "serve", *options], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "/srv/roformer/model" in done.stderr


def docker_packages():
    return set(re.search(r"--no-install-recommends ([^&]*)&&", (ROOT / "Dockerfile").read_text())[1].split()) - {"\\"}


def test_packages_of_the_image_are_those_of_setup():
    setup = re.search(r"^packages=\(([^)]*)\)", (ROOT / "scripts" / "setup.sh").read_text(), re.M)[1]
    assert docker_packages() == set(setup.split()) | FOR_PACKAGES


def test_dockerfile():
    needs("hadolint")
    assert run("hadolint", ROOT / "Dockerfile") == ""


def test_the_context_of_the_image_is_enough(tmp_path):
    """CMake finds every folder that the packages need among the files that are sent to the builder."""
    needs("git", "cmake", "ninja")
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert ignored[0] == ".*"
    for name in run("git", "ls-files", cwd=ROOT).splitlines():
        if not name.startswith(".") and name.split("/")[0] not in ignored[1:]:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)
    script = (tmp_path / "scripts" / "package.sh").read_text()
    command = re.search(r"^(cmake -S .*?) \"\$\{launcher", script, re.M | re.S)[1]
    run(*command.replace("\\\n", " ").replace('"$build"', str(tmp_path / "build")).split(), cwd=tmp_path)


def test_size_of_the_image(root):
    needs("dpkg-query")
    program = next(root.glob("usr/lib/*/roformer/libroformer_cli.so"))
    found = dict(re.findall(r"(\S+)\.so\S* => (/\S+)", run("ldd", program)))
    others = {name: path for name, path in found.items() if not path.startswith(str(root))}
    added = {name: path for name, path in others.items() if name in OTHER_LIBRARIES}
    assert set(added) == OTHER_LIBRARIES
    of_base = [Path(path).resolve() for name, path in others.items() if name not in OTHER_LIBRARIES]
    owners = [run("dpkg-query", "-S", f"*/{path.parent.name}/{path.name}") for path in of_base]
    assert {owner.split(":")[0] for owner in owners} <= set(DISTROLESS)
    base = sum(1024 * int(size) for size in run("dpkg-query", "-Wf", "${Installed-Size}\n", *DISTROLESS).split())
    ours = sum(path.stat().st_size for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    total = base + ours + sum(Path(path).stat().st_size for path in added.values())
    assert total < MOST_BYTES, f"{total / 1e6:.1f} MB"
    print(f"image: {total / 1e6:.1f} MB")
