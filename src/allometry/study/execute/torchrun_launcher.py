"""torchrun for processes of this machine alone, none of them for others to reach.

By itself torchrun lets processes find one another through a server that listens on every network
the machine is in. Here they meet in a file that only their user may read, and then speak over the
loopback interface.
"""

import os
import sys
import tempfile
import uuid
from pathlib import Path

from allometry.train.distributed import MEETING

LOOPBACK = {"linux": "lo", "darwin": "lo0"}


def main() -> None:
    """As torchrun, with its arguments but those of the rendezvous."""
    from torch.distributed import run

    # What gloo listens on; by itself it takes the address that the machine's name has.
    if sys.platform in LOOPBACK:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK[sys.platform])
    # Else the launcher has a server ready for the workers, on every network.
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    with tempfile.TemporaryDirectory(prefix="allometry-") as room:
        os.environ[MEETING] = str(Path(room) / "workers")
        run.main(
            [
                "--rdzv-backend=c10d",
                "--rdzv-conf=store_type=file",
                f"--rdzv-endpoint={Path(room) / 'launchers'}",
                f"--rdzv-id={uuid.uuid4()}",
                "--local-addr=127.0.0.1",
                *sys.argv[1:],
            ]
        )


if __name__ == "__main__":
    main()
