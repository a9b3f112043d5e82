"""torchrun for processes on this machine, not reachable over a network.

By default torchrun's processes find each other through a server that listens on all network
interfaces. Here they use a file that only their user can read, and the loopback interface.
"""

import os
import sys
import tempfile
import uuid
from pathlib import Path

from allometry.train.distributed import MEETING

LOOPBACK = {"linux": "lo", "darwin": "lo0"}


def main() -> None:
    """As torchrun, with its arguments except those of the rendezvous."""
    from torch.distributed import run

    # The interface of gloo; by default that of the machine's host name.
    if sys.platform in LOOPBACK:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK[sys.platform])
    # Otherwise the launcher starts a server for the workers on all interfaces.
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    with tempfile.TemporaryDirectory(prefix="allometry-") as folder:
        os.environ[MEETING] = str(Path(folder) / "workers")
        run.main(
            [
                "--rdzv-backend=c10d",
                "--rdzv-conf=store_type=file",
                f"--rdzv-endpoint={Path(folder) / 'launchers'}",
                f"--rdzv-id={uuid.uuid4()}",
                "--local-addr=127.0.0.1",
                *sys.argv[1:],
            ]
        )


if __name__ == "__main__":
    main()
