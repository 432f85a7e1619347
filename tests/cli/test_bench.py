"""`roformer bench`: every kernel's case is right and can be timed; what it prints; bad input."""

import json

import pytest

from cli_support import refused, results, run

KERNELS = {"rope", "attention", "linear-attention", "norm", "gelu", "softmax", "cross-entropy", "linear"}
TINY = ("bench", "--tiny", "--rounds", 1)


@pytest.fixture(scope="module")
def lines():
    """Every case with peers, which are verified before they are timed."""
    return results(*TINY, "--peers")


def kernels(names):
    return {name.split("/")[0] for name in names}


def test_first_line_says_where_and_of_what(lines):
    machine = lines[0]["machine"]
    assert set(machine) == {"cpu", "cores", "threads", "target", "torch", "commit"} and all(machine.values())
    assert lines[0]["rounds"] == 1 and machine["threads"] == 1


def test_every_case_is_timed_with_its_peers(lines):
    listed = [line["case"] for line in results("bench", "--tiny", "--list")]
    assert kernels(listed) == KERNELS and len(set(listed)) == len(listed)
    sides = {}
    for line in lines[1:]:
        sides.setdefault(line["case"], []).append(line["side"])
    assert list(sides) == listed
    for case, names in sides.items():
        copy = ["copy"] * case.startswith("rope/")
        assert names == ["ours", *["torch"] * ("in-place" not in case), *copy]


def test_a_result_line(lines):
    for line in lines[1:]:
        (rate,) = set(line) - {"case", "side", "sets", "error_eps", "median_us", "ours_times_as_fast"}
        counted = line["case"].startswith(("attention/", "linear-attention/", "linear/"))
        assert rate == ("gflop_per_s" if counted else "gigabytes_per_s")
        assert line[rate] > 0 and line["median_us"] > 0 and line["sets"] >= 1 and line["error_eps"] >= 0
        assert line["side"] != "ours" or line["ours_times_as_fast"] == 1


def test_the_cases_have_the_sizes_of_their_names():
    names = [line["case"] for line in results("bench", "--list")]
    assert kernels(names) == KERNELS
    for shape in ("8x128", "2x512", "1x2048"):
        for dtype in ("float32", "bfloat16"):
            for bias in ("plain", "t5"):
                assert f"attention/{bias}/{shape}/{dtype}/forward" in names
                assert f"attention/{bias}/{shape}/{dtype}/forward-backward" in names


def test_filter_is_a_regular_expression():
    names = [line["case"] for line in results("bench", "--list", "--tiny", "--filter", "^norm/(rms|layer)/.*/forward$")]
    assert names == [f"norm/{kind}/5x24/{t}/forward" for kind in ("layer", "rms") for t in ("float32", "bfloat16")]


def test_sets_and_no_peers_unless_asked_for():
    lines = results(*TINY, "--filter", "softmax", "--sets", 3)[1:]
    assert {(line["side"], line["sets"]) for line in lines} == {("ours", 3)}


def test_results_into_a_file(tmp_path):
    path = tmp_path / "results.jsonl"
    assert results(*TINY, "--filter", "gelu/erf", "--json", path) == []
    written = [json.loads(line) for line in path.read_text().splitlines()]
    assert "machine" in written[0] and len(written) == 5


def test_bad_input(tmp_path, monkeypatch):
    assert "a regular expression without back-references, got" in refused("bench", "--filter", "(")
    assert "a regular expression without back-references, got" in refused("bench", "--filter", r"(a)\1")
    assert 'part of a case\'s name (roformer bench --list has them), got "nothing"' in refused(
        "bench", "--filter", "nothing"
    )
    assert "nowhere" in refused(*TINY, "--filter", "gelu", "--json", tmp_path / "nowhere" / "x")
    for option, value in (("--rounds", "0"), ("--rounds", "many"), ("--sets", "-1"), ("--threads", "0")):
        assert option in refused("bench", option, value, code=2)
    monkeypatch.setenv("RF_KERNEL", "ref")
    assert "[bench] [attention] dtype must be RF_F64" in refused_at("attention")


@pytest.mark.parametrize("opening", ["(", "[", "(?:", "(?="])
def test_a_filter_of_deep_nesting_is_refused(opening):
    deep = opening * 30_000 + "a" + {"[": "]"}.get(opening, ")") * 30_000
    assert f"the filter must have at most 512 bytes, got {len(deep)}" in refused("bench", "--list", "--filter", deep)


def test_a_filter_of_the_greatest_length_and_one_of_many_stars_are_matched():
    listed = ("bench", "--list", "--tiny", "--filter")
    everything = results("bench", "--list", "--tiny")
    assert results(*listed, "(" * 255 + "./" + ")" * 255) == everything
    assert results(*listed, "(.*)*" * 20 + "/") == everything
    assert "part of a case's name" in refused(*listed, "(.*)*" * 20 + "!")


def refused_at(kernel):
    """The message of a run that has begun."""
    done = run(*TINY, "--filter", f"^{kernel}/")
    assert done.returncode == 1 and len(done.stdout.splitlines()) == 1
    return done.stderr
