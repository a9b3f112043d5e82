"""The server for agents, driven by the official client over standard input and output."""

import asyncio
import json
import os
import sys

import numpy as np
import pytest

mcp = pytest.importorskip("mcp", reason="the extra mcp is not installed")

from allometry._core.errors import MissingExtraError  # noqa: E402
from allometry.cli import mcp_server  # noqa: E402
from allometry.laws import FORMS  # noqa: E402


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("agent") / "runs"
    place.mkdir()
    N = np.geomspace(1e6, 1e9, 5)
    lines = [f"{n},{20 * n},{2 + 300 / n**0.3},a" for n in N]
    lines += [f"{n},{20 * n},{2 + 280 / n**0.3},b" for n in N]
    (place / "two.csv").write_text("\n".join(["N,D,loss,recipe", *lines]))
    (place / "runs.csv").write_text("\n".join(["N,D,loss,recipe", *lines[:5]]))
    (place.parent / "secret.csv").write_text((place / "runs.csv").read_text())
    (place / "link.csv").symlink_to(place.parent / "secret.csv")
    return place


FORM = {"form": "floor"}
CALLS = [
    # tool, arguments, code of the refusal or ""
    ("fit", {"runs": "runs.csv", **FORM}, ""),
    ("plan", {"runs": "runs.csv", "compute": 1e20, **FORM}, ""),
    ("next", {"runs": "runs.csv", "budget": 1e17, "compute": 1e20, "most": 1, **FORM}, ""),
    ("compare", {"runs": ["two.csv"], "by": "recipe"}, ""),
    ("explain", {"name": "allocation_not_identified"}, ""),
    ("explain", {"name": "chinchilla"}, ""),
    ("fit", {"runs": "none.csv"}, "no_such_file"),
    ("fit", {"runs": "runs.csv", "form": "--help"}, "invalid_input"),
    ("fit", {"runs": "../secret.csv"}, "invalid_input"),
    ("fit", {"runs": "link.csv"}, "invalid_input"),
    ("fit", {"runs": "/etc/passwd"}, "invalid_input"),
    ("fit", {"runs": "a\0b"}, "invalid_input"),
    ("plan", {"runs": "runs.csv"}, "invalid_input"),
    ("explain", {"name": "<b>"}, "unknown_name"),
]
MALFORMED = [
    ("fit", {}),
    ("fit", {"runs": 3}),
    ("plan", {"runs": "runs.csv", "compute": "much"}),
    ("compare", {"runs": "two.csv"}),
    ("fly", {}),
]


def test_the_official_client_calls_every_tool(folder):
    code = "from allometry.cli import main; main()"
    path = os.pathsep.join(p for p in sys.path if p)
    server = mcp.StdioServerParameters(
        command=sys.executable,
        args=["-c", code, "mcp", "--root", str(folder)],
        env=os.environ | {"PYTHONPATH": path},
    )

    async def talk():
        found = []
        async with mcp.Client(server) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            for name, arguments, _ in CALLS:
                found.append(await client.call_tool(name, arguments))
            for name, arguments in MALFORMED:
                try:
                    answer = await client.call_tool(name, arguments)
                except mcp.MCPError:
                    continue
                assert answer.is_error, (name, arguments)
        return tools, found

    tools, found = asyncio.run(asyncio.wait_for(talk(), 240))
    assert set(tools) == {"fit", "plan", "next", "compare", "explain"}
    assert all(tool.description for tool in tools.values())
    for (name, arguments, wanted), answer in zip(CALLS, found, strict=True):
        text = answer.content[0].text
        if not wanted:
            assert not answer.is_error, (name, arguments, text)
            continue
        assert answer.is_error, (name, arguments)
        assert f'"code": "{wanted}"' in text, (name, arguments, text)
    law, plan = (json.loads(answer.content[0].text) for answer in found[:2])
    assert law["form"] == "floor"
    assert "allocation_not_identified" in plan["codes"]
    assert found[1].structured_content["N"] == plan["N"]
    assert json.loads(found[3].content[0].text)["winner"] == "b"


def test_every_form_is_explained():
    for name in FORMS[1:]:
        assert mcp_server.explained(name)["kind"] == "form"


def test_a_missing_sdk_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    with pytest.raises(MissingExtraError, match=r"allometry\[mcp\]"):
        mcp_server.server(tmp_path)
