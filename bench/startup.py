"""What a user waits for besides training: worker start, profiling, first chart, and the rest.

Run: python bench/startup.py [workers] [profiling] [overhead]

`workers` compares new processes with forks of the server; `profiling` schedules one small study
three times with an empty cache; `overhead` compares the CPU time of a study of 40 short runs with
that of its runs, and says when the first page was written. CPU seconds include every process, so
that they mean something on a busy machine too. A figure is the median of a few repetitions.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import needs

from allometry.study import Study, local, recipes
from allometry.study.execute import child_processes
from allometry.targets import Text

WORKER = "allometry.study.execute.worker"


def cpu_of(pid):
    """CPU seconds of a process and of those of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def cpu_here():
    """CPU seconds of this process, of its ended children, and of living servers."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    own = sum(each.ru_utime + each.ru_stime for each in used)
    return own + sum(cpu_of(s.process.pid) for s in child_processes._SERVERS.values())


def ready_and_ended(child):
    child.stdout.readline()
    child.stdin.write(b'{"stop": true}\n')
    child.stdin.flush()
    child.wait(60)


def new_process():
    return subprocess.Popen(
        [sys.executable, "-m", WORKER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=child_processes.environment_of(1),
    )


def measured(start):
    """CPU and wall seconds until a worker is ready and has ended."""
    before, begun = cpu_here(), time.perf_counter()
    ready_and_ended(start())
    return cpu_here() - before, time.perf_counter() - begun


def workers(repetitions=5):
    def forked():
        return child_processes.start(WORKER, threads=1)

    new = [measured(new_process) for _ in range(3)]
    first = measured(forked)
    time.sleep(0.1)
    further = [measured(forked) for _ in range(repetitions)]
    print("worker            CPU s   wall s")
    for name, found in (("new process", new), ("server + first", [first]), ("further", further)):
        cpu, wall = (statistics.median(column) for column in zip(*found, strict=True))
        print(f"{name:16} {cpu:6.2f} {wall:8.2f}")


def short(tokens):
    """Two sizes, five numbers of tokens, four seeds: 40 runs of about a second."""
    text = Text.from_string("she sells sea shells by the sea shore. " * 400)
    return Study(text, [recipes.transformer], [1e3, 4e3], seeds=4, tokens=tokens)


def profiling():
    print("profiling of study   CPU s   wall s")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        for number, scale in enumerate((1.0, 1.5, 2.0), 1):
            before, begun = cpu_here(), time.perf_counter()
            study = short([4e3 * scale, 8e3 * scale])
            study.schedule(f"{folder}/study", workers=2, threads=1)
            print(f"{number:17} {cpu_here() - before:9.2f} {time.perf_counter() - begun:8.2f}")


def overhead():
    study = short([2e4, 3e4, 4e4, 5e4, 6e4])
    with tempfile.TemporaryDirectory() as folder:
        before, begun, spent = cpu_here(), time.perf_counter(), []
        first = []

        def watch(event):
            if event.kind == "done":
                spent.append(event.data["cpu"])
                first.append(time.perf_counter() - begun)

        study.run(f"{folder}/study", local(workers=2, threads=1), watch=watch)
        total, wall = cpu_here() - before, time.perf_counter() - begun
    print(f"{len(spent)} runs: {sum(spent):.1f} CPU s; the study {total:.1f} CPU s, {wall:.1f} s")
    print(f"study / runs: {total / sum(spent):.2f}; first result after {first[0]:.1f} s")


PARTS = {"workers": workers, "profiling": profiling, "overhead": overhead}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    for part in parser.parse_args().parts or PARTS:
        PARTS[part]()


if __name__ == "__main__":
    needs.run(main)
