"""Processes that a test has started, found in /proc."""

import os
from pathlib import Path


def descendants(root=None):
    """Every process that descends from this one, or from `root`, with its command line."""
    parents, lines = {}, {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(path.name)] = int((path / "stat").read_text().rsplit(")", 1)[1].split()[1])
            lines[int(path.name)] = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
    found = {os.getpid() if root is None else root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return {pid: lines[pid] for pid in found if pid in lines}


def alive(known):
    """Those of `known` (as `descendants` gives them) that have not ended."""
    return {pid: line for pid, line in known.items() if _state(pid) not in "ZX"}


def _state(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "X"


LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "0" * 24 + "01000000"}
"""127.0.0.1 and ::1 as /proc writes them."""


def listening():
    """Addresses that processes started from here listen at."""
    sockets = set()
    for pid in descendants():
        try:
            names = [str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir()]
        except OSError:
            continue
        sockets |= {n[8:-1] for n in names if n.startswith("socket:[")}
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            cells = line.split()
            if cells[3] == "0A" and cells[9] in sockets:
                found.append(cells[1].split(":")[0])
    return found
