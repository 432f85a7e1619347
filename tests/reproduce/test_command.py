"""roformer reproduce: the table, what is kept, training that is interrupted, and what it refuses."""

import json
import signal
import subprocess
import time

import numpy as np
import pytest
from safetensors.numpy import load_file

import tolerances as tol
from cli_support import PROGRAM, ROOT, refused, results, run


def result_of(output, name):
    return json.loads((output / "tiny" / name / "result.json").read_text())


def test_list_is_what_the_page_says():
    page = (ROOT / "docs" / "reproduce.md").read_text()
    for line in results("reproduce", "--list", "--scale", "small"):
        claims = ", ".join(line["claims"]) or "-"
        row = f"| `{line['name']}` | {line['spec']} | {claims} | {line['title']} | {line['budget']} |"
        assert row in page
        for file in line["data"]:
            folder, name = file.split("/")
            assert f"`{folder}`" in page and f"`{name}`" in page, file
    everywhere = [results("reproduce", "--list", "--scale", scale) for scale in ("tiny", "paper")]
    assert [line["name"] for line in everywhere[0]] == [line["name"] for line in everywhere[1]]


def test_scale_paper_says_what_it_costs_and_what_differs():
    lines = {line["name"]: line for line in results("reproduce", "--list", "--scale", "paper")}
    tokens = 4 * 3 * 100_000 * 64 * 512  # arms, seeds, steps
    weights = 12 * (4 * 768**2 + 2 * 768 * 3072)
    operations = tokens * (6 * weights + 12 * 12 * 768 * 512 + 6 * 0.15 * 30_000 * 768)
    assert lines["convergence"]["operations"] == pytest.approx(operations)
    assert any("schedule" in text for text in lines["convergence"]["exceptions"])
    assert lines["decay"]["operations"] == 0 and lines["decay"]["exceptions"] == []
    for name, line in lines.items():
        assert line["exceptions"] or line["operations"] == 0 or name in ("word-position", "trained-scores"), name


def test_scale_paper_says_so_before_it_asks_for_data(tmp_path):
    message = refused("reproduce", "convergence", "--scale", "paper", "--output", tmp_path / "out")
    for words in ("each arm is trained with 3 seeds", "C-17 will be inconclusive", "training costs about", "--data"):
        assert words in message
    message = refused("reproduce", "similar-texts", "--scale", "paper", "--output", tmp_path / "out")
    assert "will be inconclusive" not in message  # its rates are searched for


def test_what_is_done_is_kept_while_its_settings_are_the_same(tmp_path):
    (line,) = results("reproduce", "norm", "--output", tmp_path)
    assert line["kept"] is False and set(line["verdicts"].values()) == {"proved"}
    path = tmp_path / "any" / "norm" / "result.json"
    before = path.stat().st_mtime_ns
    (line,) = results("reproduce", "norm", "--output", tmp_path)
    assert line["kept"] is True and path.stat().st_mtime_ns == before
    path.write_text(json.dumps({**json.loads(path.read_text()), "settings": {"other": 1}}))
    assert results("reproduce", "norm", "--output", tmp_path)[0]["kept"] is False
    # What is not a whole result is made again.
    for damage in (lambda result: {"settings": result["settings"]}, lambda result: result | {"revision": "1"}):
        path.write_text(json.dumps(damage(json.loads(path.read_text()))))
        assert results("reproduce", "norm", "--output", tmp_path)[0]["kept"] is False


def test_mathematics_has_no_scale(tmp_path):
    by_scale = {line["name"]: line["scale"] for line in results("reproduce", "--list", "--scale", "small")}
    assert set(by_scale.values()) == {"any", "small"} and by_scale["convergence"] == "small"
    (line,) = results("reproduce", "norm", "--scale", "small", "--output", tmp_path)
    assert line["scale"] == by_scale["norm"] == "any" and line["verdicts"] == {"C-06": "proved"}
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["any"]
    (line,) = results("reproduce", "norm", "--scale", "paper", "--output", tmp_path)
    assert line["kept"] is True


def test_register(tmp_path):
    results("reproduce", "norm", "--output", tmp_path)
    register = json.loads((tmp_path / "register.json").read_text())
    assert [claim["id"] for claim in register["claims"]] == [f"C-{i:02}" for i in range(1, 33)]
    by_id = {claim["id"]: claim for claim in register["claims"]}
    assert by_id["C-26"]["experiments"] == ["pairwise"]
    for line in results("reproduce", "--list"):
        assert all(line["name"] in by_id[claim]["experiments"] for claim in line["claims"])
    assert {table["id"] for table in register["tables"]} == {f"R-TAB-{i}" for i in range(1, 8)}


def test_all_leaves_out_what_lacks_data(numeric, tmp_path):
    known = {line["name"] for line in results("reproduce", "--list") if line["data"]}
    done = run("reproduce", "all", "--output", tmp_path)
    assert done.returncode == 0
    missing = {line["name"] for line in map(json.loads, done.stdout.splitlines()) if "missing_data" in line}
    assert missing == known and "en_books/books_valid.jsonl" in done.stderr and "github.com" in done.stderr


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["decai"], ["decai", "did you mean decay"]),
        (["decay", "--scale", "smal"], ["smal", "did you mean small"]),
        (["all", "decai"], ['"decai"', "did you mean decay?"]),
        ([], ["none", "--list"]),
        (["convergence"], ["no --data", "en_books/books_valid.jsonl", "github.com"]),
    ],
)
def test_bad_input(tmp_path, arguments, words):
    message = refused("reproduce", *arguments, "--output", tmp_path / "out")
    assert all(word in message for word in words), message
    assert not (tmp_path / "out").exists()


def test_bad_output_and_data(tmp_path):
    assert "--output" in refused("reproduce", "decay", code=2)
    (tmp_path / "file").write_text("")
    assert "directory" in refused("reproduce", "decay", "--output", tmp_path / "file")
    message = refused("reproduce", "convergence", "--output", tmp_path / "out", "--data", tmp_path)
    assert str(tmp_path) in message and "books_valid.jsonl" in message


def directory_of(output, arm):
    """Of the runs of an arm of convergence, with the rate that was chosen for it."""
    runs = output / "tiny" / "runs" / "convergence"
    return next(runs.glob(f"*/{arm.replace(':', '+')}"), runs)


@pytest.fixture(scope="module")
def trained(data_sets, tmp_path_factory):
    """The trained experiments but `encodings`, interrupted twice on the way."""
    folder, _ = data_sets
    output = tmp_path_factory.mktemp("trained")
    names = ["convergence", "word-position", "trained-scores", "trained-frequencies"]
    arguments = ["reproduce", *names, "--output", output, "--data", folder]
    command = [PROGRAM, *map(str, arguments), "--threads", "1"]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for _ in range(3000):
        time.sleep(0.2)
        metrics = directory_of(output, "none") / "seed-1" / "metrics.jsonl"
        if metrics.exists() and metrics.read_bytes().count(b"\n") > 1:
            break
    child.send_signal(signal.SIGTERM)
    message = child.communicate()[1]
    assert child.returncode == 128 + signal.SIGTERM and "interrupted" in message
    assert not (output / "tiny" / "convergence").exists()
    lines = metrics.read_text().splitlines()
    assert [line["name"] for line in results(*arguments)] == names
    assert metrics.read_text().splitlines()[: len(lines)] == lines  # it went on
    return output


def steps_ratio(*curves):
    """Of means over a twentieth of the run, five points at least, from the step on after which they stay low."""
    means = []
    for curve in curves:
        points = max(5, len(curve["y"]) // 20)
        means.append((curve["x"][points - 1 :], np.convolve(curve["y"], np.ones(points) / points, "valid")))
    goal = max(losses[-1] for _, losses in means)
    own, other = (x[np.flatnonzero(np.append(np.inf, losses[:-1]) > goal)[-1]] for x, losses in means)
    return own / other


def test_convergence(trained):
    result = result_of(trained, "convergence")
    table = {row[0]: row for row in result["table"]["rows"]}
    assert list(table) == ["none", "sinusoidal:scale_embedding=true", "learned", "rope"]
    for line in result["series"]:
        arm = line["name"].split(",")[0]
        path = directory_of(trained, arm) / "seed-1" / "metrics.jsonl"
        metrics = [json.loads(text) for text in path.read_text().splitlines()]
        losses = {m["step"]: m["loss"] for m in metrics if m["type"] == "train"}
        assert line["x"] == list(losses) and line["y"] == list(losses.values())
        late = [loss for step, loss in losses.items() if step > max(losses) / 3]
        assert table[arm][2] == pytest.approx(np.mean(late), rel=tol.T1_RTOL)
    assert result["verdicts"] == {"C-17": "smoke run", "X-03": "smoke run"}
    # The values that rules compare, and the rate of each arm out of at least three.
    held_out = {m["arm"]: m["value"] for m in result["measures"] if m["name"] == "held-out loss, nats per token"}
    assert held_out == {arm: row[5] for arm, row in table.items()}
    name = "steps to the loss that both reach, of those of learned"
    (steps,) = (m["value"] for m in result["measures"] if m["name"] == name)
    curves = [next(line for line in result["series"] if line["name"].startswith(arm)) for arm in ("rope", "learned")]
    assert steps == pytest.approx(steps_ratio(*curves), rel=tol.T1_RTOL)
    for tried in result["rates"]:
        assert {3e-4, 1e-3, 3e-3} <= set(tried["rates"]) and len(tried["losses"]) == len(tried["rates"])
        best = tried["rates"][int(np.argmin(tried["losses"]))]
        run = json.loads((directory_of(trained, tried["arm"]) / "seed-1" / "run.json").read_text())
        assert run["schedule"]["learning_rate"] == best
        assert sorted(entry["learning_rate"] for entry in tried["training"]) == tried["rates"]
        assert all(len(entry["parts"]) == 1 and entry["parts"][0]["commit"] for entry in tried["training"])
    assert [tried["arm"] for tried in result["rates"]] == list(table)


def test_each_run_has_a_record_of_its_training(trained):
    result = result_of(trained, "convergence")
    assert [(entry["arm"], entry["seed"]) for entry in result["training"]] == [
        (row[0], 1) for row in result["table"]["rows"]
    ]
    for entry in result["training"]:
        for part in entry["parts"]:
            assert {"command", "commit", "cpu", "cores", "threads", "target", "torch", "seconds"} <= set(part)
        assert entry["seconds"] == pytest.approx(sum(part["seconds"] for part in entry["parts"]))
        record = json.loads((directory_of(trained, entry["arm"]) / "seed-1.training.json").read_text())
        assert record["finished"] is True and record["settings"]["schedule"]["learning_rate"] == entry["learning_rate"]
    # With the number of threads where it was given: of the process that was interrupted.
    commands = {
        part["command"] for path in trained.rglob("*.training.json") for part in json.loads(path.read_text())["parts"]
    }
    assert {command.split(" --data ")[1].partition(" ")[2] for command in commands} == {"", "--threads 1"}
    # Results that read finished models show who trained them, not themselves.
    for name, arm in {"word-position": "learned", "trained-scores": "rope", "trained-frequencies": "rope"}.items():
        read = [entry for entry in result["training"] if entry["arm"] in ("none", arm)]
        assert result_of(trained, name)["training"][: len(read)] == read


def test_insides_of_trained_models(trained):
    (words,) = result_of(trained, "word-position")["table"]["rows"]
    assert words[0] == 1 and min(words[1:]) > 0
    (scores,) = result_of(trained, "trained-scores")["series"]
    assert len(scores["x"]) == 128 and np.isfinite(scores["y"]).all()
    (attention,) = result_of(trained, "trained-scores")["maps"]
    weights = np.array(attention["values"])
    assert attention["x"] == list(range(-32, 33)) and weights.shape == (4 * 4, 65) and weights.min() > 0
    # Half of the keys are that near to a query in the middle of a row; single heads may look elsewhere.
    assert weights.sum(1).max() < 1.5 and weights.sum(1).mean() > 0.3


def test_trained_frequencies(trained):
    result = result_of(trained, "trained-frequencies")
    runs = trained / "tiny" / "runs" / "trained-frequencies"
    before = (10000.0 ** (-np.arange(16) / 16)).astype(np.float32).astype(float)
    rows = {row[0]: row for row in result["table"]["rows"]}
    assert list(rows) == ["rope:trainable=true", "rope:trainable=log"]
    # The other arms are models of convergence.
    assert [entry["arm"] for entry in result["training"]] == ["none", "rope", *rows]
    assert len(list(runs.glob("*/*/seed-1"))) == 2
    for arm, (_, _, middle, largest, of_logarithm, _) in rows.items():
        (path,) = runs.glob("*/" + arm.replace(":", "?") + "/seed-1/model.safetensors")
        tensors = load_file(path)
        if arm.endswith("log"):
            now = np.exp(tensors["position_encoding.log_freqs"].astype(float))
            measured = np.median(np.abs(np.log(now / before)))
            assert of_logarithm == pytest.approx(measured)
            (value,) = [m["value"] for m in result["measures"] if m["name"].startswith("median change of the log")
                        and m["arm"] == arm]  # fmt: skip
            assert value == of_logarithm
        else:
            now = tensors["position_encoding.freqs"].astype(float)
        change = np.abs(now - before) / before
        assert middle == pytest.approx(np.median(change)) and largest == pytest.approx(change.max())
        assert largest > 0
    assert set(result["verdicts"]) == {"C-29", "X-16"}
