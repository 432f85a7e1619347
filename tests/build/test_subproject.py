"""The project as part of another one: `add_subdirectory(roformer)`."""

import json
import re
import subprocess

import pytest

from cli_support import ROOT

PARENT = f"""
cmake_minimum_required(VERSION 3.25)
project(parent LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(ROFORMER_TORCH OFF)
add_subdirectory("{ROOT}" roformer)
add_executable(app app.cpp)
target_link_libraries(app PRIVATE rf::core rf::data)
file(GENERATE OUTPUT "${{CMAKE_BINARY_DIR}}/found.txt"
  CONTENT "$<TARGET_FILE:app>
$<TARGET_FILE:rf_core>
${{CMAKE_RUNTIME_OUTPUT_DIRECTORY}}
$<TARGET_EXISTS:rf_core_test>
")
"""
APP = """
#include <rf/data/reader.h>
#include <rf/status.h>
int main() { return rf_target() == nullptr; }
"""


def cmake(*arguments):
    done = subprocess.run(["cmake", *map(str, arguments)], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def parent(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parent")
    (folder / "CMakeLists.txt").write_text(PARENT)
    (folder / "app.cpp").write_text(APP)
    cmake("-G", "Ninja", "-S", folder, "-B", folder / "build")
    return folder


def test_its_files_stay_in_its_folder_and_the_parents_in_theirs(parent):
    app, core, programs, _ = (parent / "build" / "found.txt").read_text().splitlines()
    assert app == str(parent / "build" / "app")
    assert re.sub(r"(\.so)[.0-9]*$", r"\1", core) == str(parent / "build" / "roformer" / "lib" / "libroformer_core.so")
    assert programs == ""  # no output folder is set for the parent


def test_tests_and_warnings_as_errors_are_off(parent):
    assert (parent / "build" / "found.txt").read_text().splitlines()[3] == "0"
    compiled = json.loads((parent / "build" / "compile_commands.json").read_text())
    ours = [entry["command"] for entry in compiled if entry["file"].startswith(str(ROOT))]
    assert ours and not any("-Werror" in command for command in ours)
    assert all("-Wall" in command for command in ours)


def test_the_parents_program_compiles_against_the_headers(parent):
    cmake("--build", parent / "build", "--target", "CMakeFiles/app.dir/app.cpp.o")
