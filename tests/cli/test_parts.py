"""prepare --part and merge: parts made on several machines give the bytes of a run over the whole; and verify."""

import json

import pytest

from cli_support import refused, results, run

PARTS = 3


def prepare(folder, output, *options):
    arguments = ["--input", folder / "corpus", "--model", folder / "vocabulary", "--valid-fraction", 0.2]
    return results("prepare", *arguments, "--shard-tokens", 300, "--output", output, *options)[0]


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def parts(prepared, tmp_path_factory):
    """The directories of all parts of the corpus."""
    folder = tmp_path_factory.mktemp("parts")
    for number in range(1, PARTS + 1):
        report = prepare(prepared, folder / str(number), "--part", f"{number}/{PARTS}")
        assert report["part"] == f"{number}/{PARTS}" and report["documents"] > 1
    return sorted(folder.iterdir())


def test_parts_give_the_bytes_of_the_whole(prepared, parts, tmp_path):
    want = prepare(prepared, tmp_path / "whole")
    (got,) = results("merge", "--input", *reversed(parts), "--output", tmp_path / "merged")
    assert got == want | {"output": str(tmp_path / "merged")}
    assert files(tmp_path / "merged") == files(tmp_path / "whole")
    assert len(files(tmp_path / "whole")) > 7


def test_parts_that_are_refused(prepared, parts, tmp_path):
    output = ["--output", tmp_path / "merged"]
    message = refused("merge", "--input", parts[0], parts[2], *output)
    assert message == "[merge] all 3 parts must be given, got none with number 2\n"
    message = refused("merge", "--input", *parts, parts[1], *output)
    assert message == f"[merge] each part must be given once, got part 2 of 3 in {parts[1]} and {parts[1]}\n"
    prepare(prepared, tmp_path / "other", "--part", "2/3", "--seed", 5)
    message = refused("merge", "--input", parts[0], tmp_path / "other", parts[2], *output)
    assert (
        message == f"[merge] all parts must have the same --seed, got 1 in {parts[0]} and 5 in {tmp_path / 'other'}\n"
    )
    message = refused("merge", "--input", *parts, prepared / "data", *output)
    assert (
        message
        == f"[merge] an input must be a part that prepare --part made, got {prepared / 'data'}, which is whole\n"
    )
    assert not (tmp_path / "merged").exists()


@pytest.mark.parametrize("part", ["0/3", "4/3", "2", "1/", "/3", "1/3x", "-1/3", "1.0/3", "", "99999999999999999999/3"])
def test_parts_that_are_none(prepared, tmp_path, part):
    arguments = ["--input", prepared / "corpus", "--model", prepared / "vocabulary", "--output", tmp_path / "data"]
    message = refused("prepare", *arguments, f"--part={part}", code=2)
    assert "--part" in message and not (tmp_path / "data").exists()
    if part:
        assert f'must be i/n with 1 <= i <= n, got "{part}"' in message


def test_more_parts_than_files(prepared, tmp_path):
    arguments = ["--input", prepared / "corpus", "--model", prepared / "vocabulary", "--output", tmp_path / "data"]
    message = refused("prepare", *arguments, "--part", "2/17")
    assert message == "[prepare] there must be a file for each part, got 16 files for 17 parts\n"


def test_verify(parts, prepared, tmp_path):
    (whole,) = results("verify", "--data", prepared / "data")
    manifest = json.loads((prepared / "data" / "data.json").read_text())
    shards = list((prepared / "data").glob("*.rfs"))
    assert whole == {
        "data": str(prepared / "data"),
        "shards": len(shards),
        "bytes": sum(shard.stat().st_size for shard in shards),
        "documents": sum(split["documents"] for split in manifest["splits"].values()),
        "tokens": sum(split["tokens"] for split in manifest["splits"].values()),
        "damaged": [],
    }
    assert results("verify", "--data", parts[1])[0]["shards"] > 1

    (tmp_path / "data").mkdir()
    for path in (prepared / "data").iterdir():
        (tmp_path / "data" / path.name).write_bytes(path.read_bytes())
    shard = tmp_path / "data" / "valid-00000.rfs"
    shard.write_bytes(shard.read_bytes()[:-1] + b"\x01")
    done = run("verify", "--data", tmp_path / "data")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"[shard] {shard}: the checksum must be ")
    (report,) = map(json.loads, done.stdout.splitlines())
    assert report["shards"] == len(shards) - 1
    assert report["damaged"] == [{"file": "valid-00000.rfs", "error": done.stderr.splitlines()[-1]}]
    assert "must be a directory made by prepare" in refused("verify", "--data", tmp_path)
    assert "--data" in refused("verify", code=2)
