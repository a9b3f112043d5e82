"""`allometry serve`: who is answered, what is refused, and that nothing breaks or leaks."""

import http.client
import json
import os
import random
import re
import resource
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import numpy as np
import pytest

import allometry as al
from allometry.report import live_server
from allometry.report.live_runs import MOST_BYTES, LiveRuns
from allometry.report.live_server import LiveServer
from allometry.runs.importers import load

SMALL = 16


def table(n=12, seed=0):
    rng = np.random.default_rng(seed)
    N, D = 10 ** rng.uniform(6, 9, n), 10 ** rng.uniform(8, 11, n)
    loss = 1.7 + 400 / N**0.34 + 410 / D**0.28
    rows = [f"{a:g},{b:g},{c:.6f}" for a, b, c in zip(N, D, loss, strict=True)]
    return "N,D,loss\n" + "\n".join(rows) + "\n"


def fit(path):
    imported = load(path)
    return al.laws.fit(imported.columns, "chinchilla", bootstrap=SMALL, starts=4), imported


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def server(folder):
    runs = folder / "runs.csv"
    runs.write_text(table())
    private = folder / "tmp"
    private.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(private))
        live = LiveRuns(runs, fit, "t0ken")
        live.refresh()
        with LiveServer(live) as made:
            thread = threading.Thread(target=made.serve_forever, args=(0.05,), daemon=True)
            thread.start()
            yield made
            made.shutdown()
            thread.join()
        live.close()
    assert list(private.iterdir()) == []


def ask(server, path="", method="GET", body=None, headers=None, *, below=True):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    whole = f"/{server.secret}/{path}" if below else path
    try:
        connection.request(method, whole, body, headers or {})
        reply = connection.getresponse()
        return reply.status, reply.read(), dict(reply.getheaders())
    finally:
        connection.close()


def upload(server, body, name="other.csv", **headers):
    path = f"upload?name={quote(name)}"
    status, text, _ = ask(server, path, "POST", body, {"X-Allometry-Token": "t0ken", **headers})
    return status, json.loads(text)


def test_it_listens_on_loopback_only(server):
    assert server.socket.getsockname()[0] == "127.0.0.1"
    assert server.address == f"http://127.0.0.1:{server.server_port}/{server.secret}/"
    assert len(server.secret) >= 24


def test_the_page_has_the_planner_and_may_connect_to_its_server_alone(server):
    status, page, headers = ask(server)
    assert status == 200
    text = page.decode()
    assert 'id="planner-data"' in text
    assert "connect-src &#39;self&#39;; img-src data:" in text
    assert headers["Content-Security-Policy"] == "frame-ancestors 'none'"
    assert headers["Cache-Control"] == "no-store"
    assert "Access-Control-Allow-Origin" not in headers
    assert ask(server, method="HEAD")[:2] == (200, b"")


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1", "127.0.0.1.evil.example", ""]
)
def test_a_request_under_another_name_is_refused(server, host):
    """A site that rebinds its name to 127.0.0.1 sends its own name."""
    status, text, _ = ask(server, headers={"Host": host})
    assert status == 403
    assert b"planner" not in text


def test_localhost_is_a_name_of_this_machine(server):
    assert ask(server, headers={"Host": f"localhost:{server.server_port}"})[0] == 200


@pytest.mark.parametrize(
    "path", ["/", "/version", "/wrong/", "/wrong/version", "//", "/%2e%2e/", "/..", "*", "/é/"]
)
def test_nothing_is_served_without_the_secret(server, path):
    raw = f"GET {path} HTTP/1.0\r\nHost: 127.0.0.1:{server.server_port}\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as s:
        s.sendall(raw)
        reply = s.recv(65536)
    assert b" 404 " in reply.split(b"\r\n")[0] or b" 400 " in reply.split(b"\r\n")[0]


@pytest.mark.parametrize("path", ["nothing", "u/", "u/x/", "u/../", "../", "version/", "upload"])
def test_there_are_no_other_pages(server, path):
    assert ask(server, path)[0] == 404


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-Allometry-Token": "wrong"},
        {"X-Allometry-Token": "t0ken", "Origin": "http://evil.example"},
        {"X-Allometry-Token": "t0ken", "Origin": "null"},
        {"X-Allometry-Token": "t0ken", "Sec-Fetch-Site": "cross-site"},
    ],
)
def test_another_site_can_not_upload(server, headers):
    status, text, _ = ask(server, "upload?name=a.csv", "POST", table(), headers)
    assert status == 403
    assert b"own page" in text


def test_a_dropped_table_gets_a_page_of_its_own(server):
    own = f"http://127.0.0.1:{server.server_port}"
    status, made = upload(server, table(15, seed=1), Origin=own)
    assert status == 201
    status, page, _ = ask(server, made["view"], below=False)
    assert status == 200
    assert "Scaling law of 15 runs" in page.decode()
    assert "other.csv</strong>, dropped here" in page.decode()
    assert "Scaling law of 12 runs" in ask(server)[1].decode()


def test_only_the_last_uploads_are_kept(server, monkeypatch):
    monkeypatch.setattr("allometry.report.live_runs.MOST_VIEWS", 2)
    monkeypatch.setattr(LiveRuns, "_page", lambda *_, **options: b"a page")
    views = [upload(server, table(13, seed=s))[1]["view"] for s in range(3)]
    assert ask(server, views[0], below=False)[0] == 404
    assert all(ask(server, view, below=False)[0] == 200 for view in views[1:])


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("runs.parquet", "ends in .csv, .tsv, .json, .jsonl; got 'runs.parquet'"),
        ("../../etc/passwd", "ends in .csv"),
        ("", "ends in .csv"),
        ("a.csv", "a.csv must"),
    ],
)
def test_a_table_that_can_not_be_fitted_is_refused_in_words(server, name, why):
    status, reply = upload(server, b"no,numbers\nhere,at all\n", name)
    assert status == 422
    assert why in reply["error"]
    assert str(server.runs._folder) not in reply["error"]


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (["Content-Length: x"], 400),
        (["Content-Length: -1"], 400),
        (["Content-Length: 1", "Content-Length: 2"], 411),
        (["Transfer-Encoding: chunked"], 411),
        ([], 411),
        ([f"Content-Length: {MOST_BYTES + 1}"], 413),
        (["Content-Length: 0"], 413),
        (["Content-Length: 100"], 408),
    ],
)
def test_lengths_are_checked_before_anything_is_read(server, lines, status, monkeypatch):
    monkeypatch.setattr(live_server.Handler, "timeout", 1.0)
    head = [
        f"POST /{server.secret}/upload?name=a.csv HTTP/1.0",
        f"Host: 127.0.0.1:{server.server_port}",
        "X-Allometry-Token: t0ken",
        *lines,
    ]
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as s:
        s.sendall("\r\n".join([*head, "", "abc"]).encode())
        s.shutdown(socket.SHUT_WR)
        assert f" {status} ".encode() in s.recv(65536)


def malformed(count):
    """Tables that are none: noise, torn tables, absurd numbers, deep JSON, names that lead out."""
    rng = random.Random(0)
    names = ["a.csv", "b.tsv", "c.json", "d.jsonl", "../../e.csv", "/etc/f.csv", 300 * "x"]
    names[-1] += ".csv"
    good = table().encode()
    for i in range(count):
        kind = i % 6
        if kind == 0:
            body = rng.randbytes(rng.randrange(1, 2000))
        elif kind == 1:
            body = good[: rng.randrange(1, 60)]
        elif kind == 2:
            body = b"N,D,loss\n" + b"\n".join(b"1e999,nan,-inf" for _ in range(9))
        elif kind == 3:
            body = b"[" * rng.randrange(1, 3000)
        elif kind == 4:
            body = b'{"N": "\xff\xfe", "loss": [1, 2]}\n' * 5
        else:
            body = b"N,loss\n" + b",".join(rng.randbytes(3) for _ in range(400))
        yield names[i % len(names)], body


def test_a_thousand_malformed_uploads_change_nothing(server, folder):
    before = sorted(path for path in folder.rglob("*"))
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    replies = [upload(server, body, name) for name, body in malformed(1000)]
    assert {status for status, _ in replies} == {422}
    assert all(reply["error"].strip() for _, reply in replies)
    assert sorted(path for path in folder.rglob("*")) == before
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used < 100_000  # kB
    assert ask(server)[0] == 200


def test_fifty_requests_at_once_are_all_answered(server):
    with ThreadPoolExecutor(50) as pool:
        replies = list(pool.map(lambda i: ask(server, "" if i % 2 else "version")[0], range(100)))
    assert replies == [200] * 100


def test_too_many_uploads_at_once_are_asked_to_come_again(server):
    for _ in range(live_server.MOST_UPLOADS):
        server.uploads.acquire()
    try:
        assert upload(server, table())[0] == 503
    finally:
        for _ in range(live_server.MOST_UPLOADS):
            server.uploads.release()
    assert upload(server, "a,b\n1,2\n")[0] == 422


def test_the_page_follows_the_runs(tmp_path):
    runs = tmp_path / "runs.csv"
    runs.write_text("N,D,loss\n1e6,1e8,5\n")
    live = LiveRuns(runs, fit, "t")
    try:
        live.refresh()
        first = live.latest
        assert b"Waiting for runs in runs.csv" in first.page
        assert b"planner-data" not in first.page
        live.refresh()
        assert live.latest is first
        runs.write_text(table())
        live.refresh()
        second = live.latest
        assert second.version > first.version
        assert b"Scaling law of 12 runs" in second.page
        runs.write_text("torn")
        os.utime(runs, ns=(1, 1))
        live.refresh()
        third = live.latest
        assert (third.page, third.version) == (second.page, second.version)
        assert "The latest runs can't be fitted" in third.note
        runs.write_text(table(14))
        live.refresh()
        assert b"Scaling law of 14 runs" in live.latest.page
        assert live.latest.note == ""
    finally:
        live.close()


def test_names_of_files_are_escaped_in_the_page(tmp_path):
    runs = tmp_path / "<img src=x onerror=alert(1)>.csv"
    runs.write_text(table())
    live = LiveRuns(runs, fit, "t")
    try:
        live.refresh()
        page = live.latest.page.decode()
    finally:
        live.close()
    assert "<img" not in re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
