"""The examples of docs/deploy.md: proxies in front of two servers, Kubernetes, and the dashboard of the metrics."""

import json
import re
import shutil
import socket
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from cli_support import PROGRAM, ROOT
from job_case import free_port
from server_case import Server, serving

EXAMPLES = ROOT / "packaging" / "examples"


def needs(program):
    path = shutil.which(program) or shutil.which(program, path="/usr/sbin")
    if path is None:
        pytest.skip(f"NOT TESTED: {program} is not installed")
    return path


def nginx(text, folder):
    """Its command with the example in a whole configuration that needs no rights."""
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in kinds)
    own = f"daemon off;\npid {folder}/pid;\nerror_log {folder}/errors;\nevents {{}}\n"
    (folder / "nginx.conf").write_text(f"{own}http {{\naccess_log off;\n{paths}{text}\n}}\n")
    return [needs("nginx"), "-c", str(folder / "nginx.conf"), "-e", str(folder / "errors")]


def haproxy(text, folder):
    (folder / "haproxy.cfg").write_text(text)
    return [needs("haproxy"), "-f", str(folder / "haproxy.cfg")]


@pytest.mark.parametrize(
    "command, file, check", [(nginx, "nginx.conf", "-t"), (haproxy, "haproxy.cfg", "-c")], ids=["nginx", "haproxy"]
)
def test_proxy(model, tmp_path, command, file, check):
    """No request is lost while one of two servers ends; the proxy accepts the example as it is."""
    text = (EXAMPLES / file).read_text()
    subprocess.run([*command(text, tmp_path), check], check=True, capture_output=True)
    with ExitStack() as stack:
        first, second = (stack.enter_context(serving("--model", model)) for _ in range(2))
        port = free_port()
        for old, new in (
            ("10.0.0.1:8080", f"127.0.0.1:{first.port}"),
            ("10.0.0.2:8080", f"127.0.0.1:{second.port}"),
            ("listen 80;", f"listen 127.0.0.1:{port};"),
            ("bind :80", f"bind 127.0.0.1:{port}"),
        ):
            text = text.replace(old, new)
        process = subprocess.Popen(command(text, tmp_path), stderr=subprocess.DEVNULL)
        stack.callback(process.wait)
        stack.callback(process.terminate)
        proxy = Server(process, f"http://127.0.0.1:{port}")
        while socket.socket().connect_ex(("127.0.0.1", port)) != 0:
            assert process.poll() is None
        for number in range(100):
            if number == 50:
                second.stop()
            assert len(proxy.post("/embed", {"inputs": f"text {number}"})) == 1
    assert 10 <= second.log.count('"/embed"') <= 50


@pytest.fixture(scope="module")
def kubernetes():
    return list(yaml.safe_load_all((EXAMPLES / "kubernetes.yaml").read_text()))


def test_kubernetes_schema(kubernetes):
    validate = pytest.importorskip("kubernetes_validate", reason="NOT TESTED: needs kubernetes-validate")
    for document in kubernetes:
        validate.validate(document, "1.30", strict=True)


def test_kubernetes_fits_the_program(kubernetes, model):
    deployment, service, _ = kubernetes
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    (port,) = container["ports"]
    assert service["spec"]["ports"][0]["targetPort"] == port["name"]
    with serving("--model", model) as server:
        for name in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert server.call("GET", container[name]["httpGet"]["path"])[0] == 200
    options = subprocess.run([PROGRAM, "serve", "--help"], capture_output=True, text=True, check=True).stdout
    dockerfile = (ROOT / "Dockerfile").read_text()
    for option in [word for word in container["args"] if word.startswith("--")] + re.findall(r'"(--\w+)"', dockerfile):
        assert f"{option} " in options
    assert f"EXPOSE {port['containerPort']}" in dockerfile


def test_dashboard(model, tmp_path):
    """Its metrics are those of the server, and Prometheus reads its queries."""
    dashboard = json.loads((EXAMPLES / "grafana.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    names = {name for query in queries for name in re.findall(r"\broformer_\w+", query)}
    with serving("--model", model) as server:
        server.post("/embed", {"inputs": "a"})
        known = set(re.findall(r"^(\w+)[ {]", server.call("GET", "/metrics")[1], re.M))
    assert names and names <= known
    queries = [query.replace("$__rate_interval", "1m") for query in queries]
    rules = [{"record": f"query:{i}", "expr": query} for i, query in enumerate(queries)]
    Path(tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    subprocess.run([needs("promtool"), "check", "rules", tmp_path / "rules.yaml"], check=True, capture_output=True)
