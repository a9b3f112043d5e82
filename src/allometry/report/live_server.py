"""The server of `allometry serve`: pages of live runs on this machine only.

It listens on 127.0.0.1. Every address begins with a secret that the command prints, so that other
users of the machine can't guess it. Requests must name this host, which stops DNS rebinding. An
upload needs the token of a page, in a header that another site can't send.
"""

import json
import secrets
import socket
import sys
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, final
from urllib.parse import parse_qs, urlsplit

from allometry._core.errors import AllometryError, InputError
from allometry._core.user_files import shorten
from allometry.report.live_runs import MOST_BYTES, LiveRuns

HOST = "127.0.0.1"
MOST_CONNECTIONS = 128
"""Connections served at once; more are closed."""

MOST_UPLOADS = 4
"""Uploads received at once; others are asked to come again."""

CHUNK = 1 << 16
SILENCE = 10.0
"""Seconds without a byte after which a connection is closed."""

LONGEST_UPLOAD = 60.0
"""Seconds that an upload may take to arrive."""

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


@final
class Refused(Exception):  # noqa: N818 - a reply, not a defect
    """A request that gets an error as its reply."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


@final
class LiveServer(ThreadingHTTPServer):
    """Serves the pages of `runs` below `address`."""

    daemon_threads = True
    request_queue_size = MOST_CONNECTIONS

    def __init__(self, runs: LiveRuns, port: int = 0) -> None:
        self.runs = runs
        self.secret = secrets.token_urlsafe(18)
        self.uploads = threading.BoundedSemaphore(MOST_UPLOADS)
        self._connections = threading.BoundedSemaphore(MOST_CONNECTIONS)
        try:
            super().__init__((HOST, port), Handler)
        except OSError as error:
            raise InputError(
                f"serve.port must be free on this machine; got {port}: {error.strerror}. "
                "Leave out --port to use any."
            ) from None

    @property
    def address(self) -> str:
        """The address to open in a browser."""
        return f"http://{HOST}:{self.server_port}/{self.secret}/"

    @property
    def hosts(self) -> tuple[str, ...]:
        """The values of Host that name this server."""
        return f"{HOST}:{self.server_port}", f"localhost:{self.server_port}"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread, unless too many are open."""
        if self._connections.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection, then free its place."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say in one line what failed; a broken connection is no defect."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            sys.stderr.write(f"allometry: request failed: {type(error).__name__}: {error}\n")


@final
class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: LiveServer  # pyright: ignore[reportIncompatibleVariableOverride]
    timeout = SILENCE
    server_version = "allometry"
    sys_version = ""

    def do_GET(self) -> None:
        """Send a page, or its version."""
        self._answer(self._get)

    def do_HEAD(self) -> None:
        """The same without the content."""
        self._answer(self._get)

    def do_POST(self) -> None:
        """Fit an uploaded table."""
        self._answer(self._post)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        """Requests are not logged: their addresses contain the secret."""

    def _answer(self, reply: Any) -> None:
        try:
            self._check_host()
            reply()
        except Refused as error:
            self._json(error.status, {"error": str(error)})
        except OSError:  # the other side has gone
            self.close_connection = True

    # -- checks

    def _check_host(self) -> None:
        named = self.headers.get_all("Host") or []
        if len(named) != 1 or named[0] not in self.server.hosts:
            raise Refused(HTTPStatus.FORBIDDEN, "This server answers to its own address only.")

    def _parts(self) -> list[str]:
        """The path below the secret."""
        path = urlsplit(self.path).path.split("/")
        if len(path) < 3 or not secrets.compare_digest(path[1].encode(), self._secret):
            raise Refused(
                HTTPStatus.NOT_FOUND, "Open the address that `allometry serve` has printed."
            )
        return path[2:]

    @property
    def _secret(self) -> bytes:
        return self.server.secret.encode()

    def _check_sender(self) -> None:
        """The request comes from a page of this server."""
        origin = self.headers.get("Origin")
        own = {f"http://{host}" for host in self.server.hosts}
        site = self.headers.get("Sec-Fetch-Site", "same-origin")
        token = self.headers.get("X-Allometry-Token", "")
        good = secrets.compare_digest(token.encode(), self.server.runs.token.encode())
        if (origin is not None and origin not in own) or site != "same-origin" or not good:
            raise Refused(HTTPStatus.FORBIDDEN, "Only this server's own page may upload.")

    # -- replies

    def _get(self) -> None:
        parts = self._parts()
        upload = None
        if parts[0] == "u" and len(parts) == 3:
            upload, parts = parts[1], parts[2:]
        live = self.server.runs
        view = live.latest if upload is None else live.uploaded(upload)
        if view is None or parts not in ([""], ["version"]):
            raise Refused(HTTPStatus.NOT_FOUND, "There is no such page; it may have expired.")
        if parts == ["version"]:
            self._json(HTTPStatus.OK, {"version": view.version, "note": view.note})
        else:
            self._send(HTTPStatus.OK, "text/html; charset=utf-8", view.page)

    def _post(self) -> None:
        if self._parts() != ["upload"]:
            raise Refused(HTTPStatus.NOT_FOUND, "Only a table can be uploaded.")
        self._check_sender()
        size = self._size()
        names = parse_qs(urlsplit(self.path).query, max_num_fields=4).get("name", [""])
        if not self.server.uploads.acquire(blocking=False):
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "Other uploads are in progress.")
        path = None
        try:
            path = self.server.runs.receive(names[0][:200])
            self._store(path, size)
            key = self.server.runs.add(path, Path(names[0][:200]).name)
        except AllometryError as error:
            why = str(error).replace(str(path), shorten(names[0]))
            raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, why) from None
        except MemoryError:
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The table is too large.") from None
        except (Refused, OSError):
            raise
        except Exception as error:
            why = f"Unexpected {type(error).__name__} while fitting this table."
            raise Refused(HTTPStatus.INTERNAL_SERVER_ERROR, why) from None
        finally:
            self.server.uploads.release()
            if path is not None:
                path.unlink(missing_ok=True)
        self._json(HTTPStatus.CREATED, {"view": f"/{self.server.secret}/u/{key}/"})

    def _size(self) -> int:
        """The length of the body, which must be declared and bounded."""
        declared = self.headers.get_all("Content-Length") or []
        if "Transfer-Encoding" in self.headers or len(declared) != 1:
            raise Refused(HTTPStatus.LENGTH_REQUIRED, "An upload must declare its length.")
        if not (declared[0].isascii() and declared[0].isdigit() and len(declared[0]) < 16):
            raise Refused(HTTPStatus.BAD_REQUEST, "The length of an upload must be a number.")
        size = int(declared[0])
        if not 0 < size <= MOST_BYTES:
            most = f"{MOST_BYTES >> 20} MiB"
            raise Refused(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"A dropped table must have 1 byte to {most}; got {size} bytes. Give a larger "
                "one to `allometry serve`.",
            )
        return size

    def _store(self, path: Path, size: int) -> None:
        """Write the body to a file, in pieces."""
        end = time.monotonic() + LONGEST_UPLOAD
        with path.open("wb") as file:
            while size > 0:
                piece = self.rfile.read1(min(CHUNK, size))
                if not piece or time.monotonic() > end:
                    raise Refused(HTTPStatus.REQUEST_TIMEOUT, "The upload did not arrive whole.")
                file.write(piece)
                size -= len(piece)

    def _json(self, status: HTTPStatus, value: dict[str, Any]) -> None:
        self._send(status, "application/json", json.dumps(value).encode())

    def _send(self, status: HTTPStatus, kind: str, content: bytes) -> None:
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "HEAD":
            return
        self.wfile.write(content)
        self.wfile.flush()
        if self.command == "POST" and status >= HTTPStatus.BAD_REQUEST:
            self._drain()

    def _drain(self) -> None:
        """Read on for a moment: an unread body would reset the connection under the reply."""
        self.connection.shutdown(socket.SHUT_WR)
        self.connection.settimeout(0.5)
        end = time.monotonic() + 2.0
        while time.monotonic() < end and self.rfile.read1(CHUNK):
            pass
