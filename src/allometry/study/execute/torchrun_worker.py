"""One of the processes that torchrun starts; together they carry out one run after another.

The first one communicates with the driver as any worker does and forwards orders to the others.
"""

import json
import os
import signal
import sys
import threading
from queue import SimpleQueue
from typing import Any

from allometry.study.execute.worker import Worker, listen, private_output
from allometry.train.distributed import announce, joined


def main() -> None:
    """Carry out orders until the driver stops this process or exits."""
    first = os.environ["RANK"] == "0"
    output = private_output()
    shard = "--shard" in sys.argv
    with joined(shard=shard) as group:
        send = (lambda line: print(line, file=output)) if first else (lambda _: None)
        worker = Worker(send, group=group)
        signal.signal(signal.SIGTERM, lambda *_: worker.stopping.set())
        orders: SimpleQueue[dict[str, Any]] = SimpleQueue()
        if first:
            threading.Thread(target=listen, args=(sys.stdin, worker, orders), daemon=True).start()
            worker.report({"event": "ready"})
        while True:
            order = json.loads(announce(json.dumps(orders.get()) if first else "", group))
            if "stop" in order:
                return
            worker.carry_out(order)
            if worker.broken:
                # Other processes may still be running: exit, and torchrun stops them all.
                output.flush()
                os._exit(1)


if __name__ == "__main__":
    main()
