"""A Ray cluster of two nodes, each in a network namespace of its own on this machine.

The second node sees neither the study's folder nor, once its cable is pulled, anybody. Traffic
stays on a pair of virtual interfaces.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        sys.platform != "linux" or os.geteuid() != 0 or shutil.which("ip") is None,
        reason="network namespaces need Linux, root and the command ip",
    ),
]

HEAD, OTHER = "10.213.77.1", "10.213.77.2"

STUDY = """
import json, sys
import allometry as al
from allometry import Spec
from tests.study.fakes import ProcessRun

def recipe(target, ladder, *, tokens, seeds):
    return [Spec(ProcessRun, name=f"r{i}", seconds=float(sys.argv[3])) for i in range(4)]

def watch(event):
    print(json.dumps([event.kind, event.worker, event.data.get("error")]), flush=True)

text = al.targets.Text.from_string("she sells sea shells by the sea shore. " * 120)
runs = al.study.Study(text, [recipe], [1000], tokens=100).run(
    sys.argv[1], al.study.ray(sys.argv[2]), watch=watch
)
frame = runs.frame()
columns = [frame[name].tolist() for name in ("status", "shape", "error")]
print(json.dumps(["journal", *columns]), flush=True)
"""


def ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(done.stderr.strip())
    return done.stdout


@contextlib.contextmanager
def namespaces():
    """Two, with a cable between them."""
    mark = f"{os.getpid() % 100000}"
    near, far = f"allometry-{mark}a", f"allometry-{mark}b"
    try:
        try:
            for name in (near, far):
                ip("netns", "add", name)
            ip("link", "add", f"al{mark}a", "netns", near, "type", "veth",
               "peer", "name", f"al{mark}b", "netns", far)  # fmt: skip
        except OSError as error:
            pytest.skip(f"no network namespaces here: {error}")
        for name, cable, address in ((near, f"al{mark}a", HEAD), (far, f"al{mark}b", OTHER)):
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "address", "add", f"{address}/24", "dev", cable)
            ip("-n", name, "link", "set", cable, "up")
        yield near, far, f"al{mark}a"
    finally:
        for name in (near, far):
            with contextlib.suppress(OSError):
                for pid in ip("netns", "pids", name).split():
                    os.kill(int(pid), signal.SIGKILL)
                ip("netns", "del", name)


def within(name, *words, **options):
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": "0123456789abcdef" * 4,
        # A cluster's own settings: how soon a node that is not heard of counts as dead.
        "RAY_health_check_initial_delay_ms": "1000",
        "RAY_health_check_period_ms": "1000",
        "RAY_health_check_timeout_ms": "2000",
        "RAY_health_check_failure_threshold": "3",
    }
    whole = ["ip", "netns", "exec", name, *words]
    return subprocess.Popen(whole, env=environment, text=True, **options)


def node(name, hidden, *words):
    """Ray on one node; `hidden` is a folder that it is not to see."""
    start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus=1"]
    bare = f"mount -t tmpfs none {hidden} && " if hidden else ""
    line = ["sh", "-c", bare + 'exec "$@"', "sh", *start, *words]
    return within(name, *line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def nodes(name):
    code = (
        "import ray, sys; ray.init(sys.argv[1], logging_level='ERROR', log_to_driver=False)\n"
        "print(sum(n['Alive'] for n in ray.nodes()))"
    )
    asked = within(
        name, sys.executable, "-W", "ignore", "-c", code, f"{HEAD}:6379",
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    return asked.communicate(timeout=120)[0].strip()


@pytest.fixture(scope="module")
def cluster():
    """Names of the two namespaces, the head's end of the cable and the study's folder."""
    started = []
    with tempfile.TemporaryDirectory(dir="/tmp") as place, namespaces() as (near, far, cable):
        base = Path(place)
        (base / "study").mkdir()
        common = ["--include-dashboard=false", "--disable-usage-stats"]
        started += [
            node(near, None, "--head", f"--node-ip-address={HEAD}", "--port=6379",
                 f"--temp-dir={base / 'a'}", *common),
        ]  # fmt: skip
        until = time.monotonic() + 120
        while nodes(near) != "1":
            assert time.monotonic() < until
        started.append(
            node(far, base / "study", f"--address={HEAD}:6379", f"--node-ip-address={OTHER}",
                 f"--temp-dir={base / 'b'}"),
        )  # fmt: skip
        while nodes(near) != "2":
            assert time.monotonic() < until
        yield near, far, cable, base / "study"
    for process in started:
        process.wait()


def driver(near, folder, seconds):
    return within(
        near, sys.executable, "-c", STUDY, str(folder), f"{HEAD}:6379", str(seconds),
        stdout=subprocess.PIPE,
    )  # fmt: skip


def test_a_killed_driver_leaves_the_users_cluster_alone(cluster):
    near, _, _, folder = cluster
    with driver(near, folder / "killed", 100) as process:
        while json.loads(process.stdout.readline())[0] != "progress":
            pass
        process.kill()
    time.sleep(10)
    assert nodes(near) == "2"


def test_a_study_completes_when_a_node_is_cut_off(cluster):
    near, _, cable, folder = cluster
    busy, starts, cut = set(), [], False
    with driver(near, folder / "cut", 5) as process:
        for line in process.stdout:
            kind, *about = json.loads(line)  # nothing else: Ray would report the lost node here
            starts += [about] if kind == "started" else []
            busy |= {about[0]} if kind == "progress" else set()
            if len(busy) == 2 and not cut:
                ip("-n", near, "link", "set", cable, "down")
                cut = True
    assert process.returncode == 0
    assert cut
    assert kind == "journal"
    assert about[0] == ["done"] * 4, about
    assert sorted(about[1]) == ["r0", "r1", "r2", "r3"]
    assert len(starts) >= 5  # one of them was on the node that is gone
    assert not list((folder / "cut").glob(".seen*"))
