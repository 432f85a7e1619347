"""The C and C++ of the pages compiles as it stands, with the warnings of the project, and the encoding of
docs/encodings.md computes its formula with the parameters that a call gives."""

import json
import os
import shlex
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from docs_pages import DOCS, FENCE, ROOT, pages
from tolerances import T1_ATOL, T1_RTOL

BUILD = Path(os.environ.get("ROFORMER_BUILD_DIR", ROOT / "build" / "release"))
C, CPP = {"c", "h"}, {"cpp", "c++", "cc", "cxx", "hpp"}

MAIN = r"""
#include <ATen/ops/full.h>
#include <ATen/ops/arange.h>
#include <cstdio>
#include <nlohmann/json.hpp>
#include "rf/nn/encoding.h"

namespace rf::nn::posenc { EncodingEntry log_bias(); }

int main() {
  const nlohmann::json none = nlohmann::json::object();
  rf::io::StrictObject options(none, "position_encoding", "log-bias");
  const auto encoding = rf::nn::posenc::log_bias().make(options, {.heads = 2});
  const auto registered = encoding->parameters();
  const rf::nn::ParameterScope scope(registered, {at::arange(4, at::kDouble).view({2, 2, 1}) / 4});
  const auto shared = encoding->shared(rf::nn::make_positions(at::arange(5, at::kLong)), at::kDouble);
  const auto terms = encoding->terms(0, shared, {});
  std::printf("%zu %lld %lld %d", registered.size(), (long long)terms.bias.lo, (long long)terms.bias.hi,
              encoding->last_new_length() > (1 << 30));
  const at::Tensor rows = terms.bias.rows.to(at::kDouble).contiguous();
  for (int64_t i = 0; i < rows.numel(); ++i) std::printf(" %.17g", rows.data_ptr<double>()[i]);
}
"""


def compiled_blocks():
    """{page:line: (language, code)} of the pages that people write; those of docs/reference are the headers' text."""
    found = {}
    for path in pages():
        text = path.read_text(encoding="utf-8")
        for match in FENCE.finditer(text):
            if match["language"] in C | CPP and DOCS / "reference" not in path.parents:
                line = text.count("\n", 0, match.start("code")) + 1
                found[f"{path.relative_to(ROOT)}:{line}"] = match["language"], match["code"]
    return found


BLOCKS = compiled_blocks()
(OF_ENCODING,) = (place for place, (_, code) in BLOCKS.items() if "EncodingEntry" in code)


def flags_of(target):
    commands = BUILD / "compile_commands.json"
    if not commands.exists():
        pytest.skip("NOT TESTED: build/release is no build folder, whose flags are those of the pages")
    lines = [each["command"] for each in json.loads(commands.read_text())]
    words = shlex.split(next(line for line in lines if f"/{target}.dir/Unity/" in line))
    return words[: words.index("-o")]


def source_of(code):
    """A block that declares no namespace has statements, which stand in a function."""
    if "namespace" in code:
        return code
    includes = [line for line in code.splitlines() if line.startswith("#include")]
    others = [line for line in code.splitlines() if not line.startswith("#include")]
    return "\n".join([*includes, "void of_the_page(void);", "void of_the_page(void) {", *others, "}", ""])


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.mark.parametrize("place", [place for place in BLOCKS if place != OF_ENCODING])
def test_blocks_compile(place, tmp_path):
    language, code = BLOCKS[place]
    flags = flags_of("rf_nn" if "rf/nn/" in code else "rf_engine")
    if language in C:
        includes = [each for each in flags if each.startswith("-I")]
        flags = ["cc", "-std=c99", "-Wall", "-Wextra", "-Werror", *includes]
    source = tmp_path / f"block.{'c' if language in C else 'cpp'}"
    source.write_text(source_of(code))
    run(*flags, "-fsyntax-only", source)


def test_the_encoding_of_the_page(tmp_path):
    (tmp_path / "main.cpp").write_text(BLOCKS[OF_ENCODING][1] + MAIN)
    flags, lib = flags_of("rf_nn"), BUILD / "lib"
    torch_lib = Path(torch.__file__).parent / "lib"
    libraries = [f"-L{lib}", f"-L{torch_lib}", f"-Wl,-rpath,{lib},-rpath,{torch_lib}"]
    libraries += ["-lroformer_nn", "-lroformer_ops", "-ltorch", "-ltorch_cpu", "-lc10", "-lfmt"]
    run(*flags, tmp_path / "main.cpp", "-o", tmp_path / "program", *libraries)
    count, lo, hi, grows, *rows = run(tmp_path / "program").split()
    assert (count, lo, hi, grows) == ("1", "-4", "4", "1")
    r1, r2 = np.exp(np.arange(4).reshape(2, 2) / 4)
    expected = -r1[:, None] * np.log1p(r2[:, None] * np.abs(np.arange(-4, 5)))
    np.testing.assert_allclose(np.reshape(rows, (2, 9)).astype(float), expected, rtol=T1_RTOL, atol=T1_ATOL)
