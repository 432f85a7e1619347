"""`cmake --install`: what the prefix has, what its libraries export, and programs that use it after it was moved."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cli_support import PROGRAM, ROOT
from engine_case import assert_close, make_oracle, make_sequences, run_oracle
from saved_model_makers import classifier, decoder, encoder

BUILD = ROOT / "build" / "release"
EXAMPLE = ROOT / "examples" / "find_package"


def run(*command, stdin="", **options):
    words = [str(word) for word in command]
    done = subprocess.run(words, input=stdin, capture_output=True, text=True, timeout=300, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    """Installed to one folder, stripped, and moved to another."""
    if not (BUILD / "CMakeCache.txt").exists():
        pytest.skip("NOT TESTED: build/release is no build folder, so that it cannot be installed")
    folder = tmp_path_factory.mktemp("install")
    run("cmake", "--install", BUILD, "--prefix", folder / "first", "--strip")
    (folder / "first").rename(folder / "prefix")
    return folder / "prefix"


@pytest.fixture(scope="module")
def programs(prefix, tmp_path_factory):
    build = tmp_path_factory.mktemp("example")
    run("cmake", "-G", "Ninja", "-S", EXAMPLE, "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", build)
    return build


def of_others(path):
    return re.match(r"lib(dnnl|arrow|parquet)\.so", path.name)


def test_files(prefix):
    ours = [path for path in prefix.rglob("*") if path.is_file() and not of_others(path)]
    assert sum(path.lstat().st_size for path in ours) < 40 * 2**20
    names = {str(path.relative_to(prefix)) for path in prefix.rglob("*") if not path.is_dir()}
    assert {"bin/roformer", "lib/roformer/libroformer_cli.so", "lib/pkgconfig/roformer.pc"} <= names
    assert "share/doc/roformer/LICENSE" in names
    assert not any(re.search(r"\.a$|torch|roformer_(nn|ops|training)", name) for name in names)


@pytest.mark.parametrize("name", ["core", "engine"])
def test_soname_and_run_path(prefix, name):
    dynamic = run("readelf", "-d", prefix / "lib" / f"libroformer_{name}.so")
    assert re.search(rf"soname: \[libroformer_{name}\.so\.0\.1\]", dynamic)
    assert re.search(r"runpath: \[(.*)\]", dynamic)[1].split(":")[0] == "$ORIGIN"


def test_nothing_points_into_the_checkout(prefix):
    """Nor into an environment of Python: what the loader opens is of the prefix or of the system."""
    libraries = [path for path in prefix.rglob("*.so*") if not path.is_symlink()]
    for file in [prefix / "bin" / "roformer", *libraries]:
        found = re.findall(r"=> (\S+)", run("ldd", file))
        assert "not" not in found and not any("torch" in path for path in found)
        assert not [path for path in found if not path.startswith((str(prefix), "/lib", "/usr"))]
        assert str(ROOT) not in run("readelf", "-d", file)


def test_the_program_names_a_library_that_is_missing(prefix, tmp_path):
    copy = tmp_path / "prefix"
    shutil.copytree(prefix, copy, symlinks=True)
    others = [path for path in copy.rglob("*") if of_others(path)]
    if not others:
        pytest.skip("NOT TESTED: no libraries of others are installed")
    others[0].unlink()
    done = subprocess.run([copy / "bin" / "roformer", "info"], capture_output=True, text=True, check=False)
    assert done.returncode == 3 and done.stderr.startswith(f"[program] {others[0].name} must be installed, ")


def exported(library):
    lines = run("nm", "-DC", "--defined-only", library).splitlines()
    return {line.split(maxsplit=2)[2] for line in lines}


def functions_of(*headers):
    return {name for header in headers for name in re.findall(r"^RF_API\b[^;]*?\b(rf_\w+)\(", header.read_text(), re.M)}


def test_core_exports_its_c_interface(prefix):
    declared = functions_of(*(ROOT / "core" / "include" / "rf").glob("*.h"))
    assert len(declared) > 20 and exported(prefix / "lib" / "libroformer_core.so") == declared


def test_engine_exports_its_interfaces(prefix):
    found, headers = exported(prefix / "lib" / "libroformer_engine.so"), ROOT / "engine" / "include" / "rf"
    assert {name for name in found if name.startswith("rf_")} == functions_of(headers / "engine.h")
    texts = [path.read_text() for path in (headers / "engine").glob("*.h")]
    public = {name for text in texts for name in re.findall(r"RF_ENGINE_API[^(){;]*?(\w+)\s*[({]", text)}
    rest = {name for name in found if not name.startswith("rf_")} - {"rf::io::mapped_places"}
    assert "Model" in public
    assert {name for name in rest if not re.search(rf"\brf::engine::({'|'.join(public)})\b", name)} == set()


def hidden_states(folder):
    """A sequence, and what the encoder that is saved in the folder computes for it."""
    oracle = make_oracle("RoFormer", "Model")
    oracle.save_pretrained(folder)
    ids, _ = make_sequences((13,))
    return ids[0], next(run_oracle(oracle, ids, [0 * ids[0]])).last_hidden_state.numpy()


def test_the_program_runs_without_torch(prefix, tmp_path):
    assert run(prefix / "bin" / "roformer", "--version").strip() == "roformer 0.1.0"
    ids, theirs = hidden_states(tmp_path)
    np.save(tmp_path / "ids.npy", ids[None])
    files = ["--model", tmp_path, "--ids", tmp_path / "ids.npy", "--output", tmp_path / "out.npy"]
    run(prefix / "bin" / "roformer", "forward", *files)
    assert_close(np.load(tmp_path / "out.npy"), theirs)


def words_of_chinese(folder):
    """A tokenizer that segments by the dictionary of the program."""
    folder.mkdir()
    (folder / "vocab.txt").write_text("[PAD] [UNK] [CLS] [SEP] [MASK] 今天 天气 非常 今 天 气 好".replace(" ", "\n"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "RoFormerTokenizer"}))


COMMANDS = {
    "embed": (encoder("Model", "RoFormer"), ["--text", "the cat", "abc de"]),
    "predict": (classifier(), ["--text", "the cat", "abc de"]),
    "rerank": (classifier(num_labels=1), ["--query", "the cat", "--text", "abc de", "a dog"]),
    "generate": (decoder("llama"), ["--prompt", "The quick", "--max-new-tokens", "8"]),
    "tokenize": (words_of_chinese, []),
}
HIDE = 'empty=$1 n=$2; shift 2; for _ in $(seq "$n"); do mount --bind "$empty" "$1" && shift || exit; done; "$@"'


def hiding(empty, *folders):
    """The words before a command that hide folders from it: an empty one is in their place, for this command alone."""
    for options in ("-m", "-rm"):  # of root; where other users may make namespaces
        words = ["unshare", options, "--propagation", "private", "sh", "-c", HIDE, "sh", empty, len(folders), *folders]
        words = [str(word) for word in words]
        if subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0:
            return words
    pytest.skip("NOT TESTED: this user may not hide the checkout from a process (unshare -m)")


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_run_where_the_checkout_is_hidden(prefix, command, tmp_path):
    """Also without the environment of Python, whose Arrow the program was built with."""
    if command == "tokenize" and not (BUILD / "share" / "roformer" / "dict.txt").exists():
        pytest.skip("NOT TESTED: no dictionary is installed")
    make, options = COMMANDS[command]
    make(tmp_path / "model")
    (tmp_path / "empty").mkdir()
    environment = [Path(sys.prefix)] if sys.prefix != sys.base_prefix else []
    hidden = hiding(tmp_path / "empty", *environment, ROOT)
    run(*hidden, "test", "!", "-e", ROOT / "README.md", cwd=tmp_path)
    call = [command, "--model", tmp_path / "model", *options]
    stdin = "今天天气非常好\n" * (command == "tokenize")
    ours = run(*hidden, prefix / "bin" / "roformer", *call, stdin=stdin, cwd=tmp_path)
    assert ours and ours == run(PROGRAM, *call, stdin=stdin)


FOLDERS = (ROOT / "core" / "include", ROOT / "engine" / "include")
HEADERS = sorted(path.relative_to(folder).as_posix() for folder in FOLDERS for path in folder.rglob("*.h"))


@pytest.mark.parametrize("header", HEADERS)
def test_headers_need_nothing_else(prefix, header, tmp_path):
    in_cpp = header.startswith("rf/engine/")
    source = tmp_path / ("one.cpp" if in_cpp else "one.c")
    source.write_text(f'#include "{header}"\n')
    compiler = ["c++", "-std=c++20"] if in_cpp else ["cc", "-std=c99", "-pedantic"]
    options = ["-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-MD", "-MF", "included"]
    run(*compiler, *options, "-I", prefix / "include", source, cwd=tmp_path)
    assert not re.search(r"/(fmt|nlohmann|hwy|torch)/", (tmp_path / "included").read_text())


@pytest.mark.parametrize("family", ["RoFormer", "Bert"])
def test_cpp_example(programs, family, tmp_path):
    oracle = make_oracle(family, "Model")
    oracle.save_pretrained(tmp_path)
    ids, _ = make_sequences()
    theirs = [o.last_hidden_state[0].mean(0).numpy() for o in run_oracle(oracle, ids, [0 * i for i in ids])]
    lines = run(programs / "embed", tmp_path, stdin="".join(" ".join(map(str, row)) + "\n" for row in ids))
    assert_close(np.loadtxt(lines.splitlines()), np.array(theirs))


def c_output(program, model_dir, ids, **options):
    return np.loadtxt(run(program, model_dir, *ids, **options).splitlines())


def test_c_example(programs, tmp_path):
    ids, theirs = hidden_states(tmp_path)
    assert_close(c_output(programs / "embed_c", tmp_path, ids), theirs[0])


@pytest.mark.skipif(not shutil.which("pkg-config"), reason="no pkg-config")
def test_pkg_config(prefix, programs, tmp_path):
    paths = dict(os.environ, PKG_CONFIG_PATH=str(prefix / "lib" / "pkgconfig"))
    assert run("pkg-config", "--modversion", "roformer", env=paths).strip() == "0.1.0"
    flags = run("pkg-config", "--cflags", "--libs", "roformer", env=paths).split()
    run("cc", "-std=c99", "-o", tmp_path / "embed_c", EXAMPLE / "embed.c", *flags)
    make_oracle("Bert", "Model").save_pretrained(tmp_path)
    there = dict(os.environ, LD_LIBRARY_PATH=str(prefix / "lib"))
    ours = c_output(tmp_path / "embed_c", tmp_path, [5, 6, 7], env=there)
    assert np.array_equal(ours, c_output(programs / "embed_c", tmp_path, [5, 6, 7]))


def test_another_minor_version_is_refused(prefix, tmp_path):
    text = (EXAMPLE / "CMakeLists.txt").read_text().replace("find_package(roformer 0.1", "find_package(roformer 0.2")
    (tmp_path / "CMakeLists.txt").write_text(text)
    for name in ("embed.cpp", "embed.c"):
        (tmp_path / name).write_text("")
    command = ["cmake", "-G", "Ninja", "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode != 0 and "version: 0.1.0" in done.stderr


@pytest.mark.parametrize("program", ["embed", "embed_c"])
def test_examples_report_errors(programs, program, tmp_path):
    command = [programs / program, tmp_path / "none", *["1"] * (program == "embed_c")]
    done = subprocess.run(command, input="", capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("[") and "got" in done.stderr
