"""`allometry mcp`."""

from pathlib import Path
from typing import Annotated

import typer

from allometry._core.errors import require


def mcp(
    root: Annotated[
        Path, typer.Option(help="Folder whose files the tools may read; others are refused.")
    ] = Path(),
) -> None:
    """Serve fit, plan, next, compare and explain to an agent by the Model Context Protocol.

    The agent's program starts this command and talks to it on standard input and output (extra
    `mcp`).
    """
    require(root.is_dir(), "root", "be a folder", str(root))
    from allometry.cli.mcp_server import server

    server(root).run("stdio")
