"""`sebra review`: the report of a run as an app on this machine that saves verdicts at once."""

from __future__ import annotations

import hmac
import json
import secrets
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from markupsafe import escape

from sebra.errors import SebraError, UsageError
from sebra.ranking.ranking import Ranking
from sebra.runs.folder import REPORT, RunFolder
from sebra.runs.lock import lock, unlock
from sebra.samples.verdicts import VERDICTS
from sebra.workflows.report import report_run
from sebra.workflows.verdicts import verdicts_of

LOOPBACK = "127.0.0.1"
_LONGEST_BODY = 16_384
_HOME = " connect-src 'self';"
_PAGE, _API = "/", "/verdicts"
_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class _Refused(Exception):
    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


class Review(ThreadingHTTPServer):
    """Serves one run on the loopback until `shutdown`; nobody without the token gets anything."""

    daemon_threads = True

    def __init__(self, folder: RunFolder, port: int = 0) -> None:
        try:
            self._lock = lock(folder.path)
        except UsageError:
            raise UsageError(f"{folder.path}: is being reviewed or written already") from None
        ranking = Ranking.load(folder.path)
        self.verdicts = verdicts_of(folder, strict=True)
        ids = set(ranking.table["id"])
        self.known = {"patterns": set(ranking.stages), "suspects": ids, "marks": ids}
        self.file = folder.path / VERDICTS
        self.page = _page(folder)
        self.token = secrets.token_urlsafe(32)
        self.writing = threading.Lock()
        try:
            super().__init__((LOOPBACK, port), _Handler)
        except (OSError, OverflowError) as error:
            raise UsageError(f"--port: {port} cannot be used ({error})") from None
        self.hosts = {f"{name}:{self.server_port}" for name in (LOOPBACK, "localhost")}

    @property
    def address(self) -> str:
        return f"http://{LOOPBACK}:{self.server_port}/?token={self.token}"

    def server_close(self) -> None:
        super().server_close()
        unlock(self._lock)
        self._lock = None

    def say(self, change: object) -> None:
        """Takes in a verdict; when this returns, it is in the file."""
        with self.writing:
            if isinstance(change, dict) and change.get("entry") is not None:
                known = self.known.get(str(change.get("kind")), set())
                if str(change.get("key")) not in known:
                    raise UsageError("the run knows no such pattern or sample")
            self.verdicts.say(change)
            self.verdicts.save(self.file)


def _page(folder: RunFolder) -> bytes:
    """The report, written where there is none or one that cannot take verdicts."""
    path = folder.path / REPORT
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    found = served(text)
    if found is None:
        found = served(report_run(folder).read_text(encoding="utf-8"))
    assert found is not None
    return found.encode()


class _Handler(BaseHTTPRequestHandler):
    server: Review
    server_version, sys_version = "sebra", ""
    timeout = 30

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def _get(self, path: str) -> tuple[bytes, str]:
        if path == _PAGE:
            return self.server.page, "text/html; charset=utf-8"
        return self._state()

    def _post(self, path: str) -> tuple[bytes, str]:
        if path != _API:
            raise _Refused(HTTPStatus.METHOD_NOT_ALLOWED, "nothing to post to")
        if self.headers.get("Origin") is None:
            raise _Refused(HTTPStatus.FORBIDDEN, "no origin")
        if self.headers.get_content_type() != "application/json":
            raise _Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "not JSON")
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit() and int(length) <= _LONGEST_BODY):
            raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "no length, or too long")
        try:
            self.server.say(json.loads(self.rfile.read(int(length))))
        except (ValueError, RecursionError, UsageError) as error:
            raise _Refused(HTTPStatus.BAD_REQUEST, str(error)) from None
        return self._state()

    def _state(self) -> tuple[bytes, str]:
        with self.server.writing:
            return json.dumps(self.server.verdicts.to_dict()).encode(), "application/json"

    def _answer(self, make: Callable[[str], tuple[bytes, str]]) -> None:
        try:
            body, kind = make(self._checked())
            status = HTTPStatus.OK
        except _Refused as error:
            body, kind, status = str(error).encode("utf-8", "replace"), "text/plain", error.status
        except SebraError as error:  # the disk, not the request
            body, kind = str(error).encode("utf-8", "replace"), "text/plain"
            status = HTTPStatus.INTERNAL_SERVER_ERROR
        self.send_response(status)
        for name, value in {**_HEADERS, "Content-Type": kind}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _checked(self) -> str:
        """The path of a request from this machine, this page and this session."""
        hosts = self.headers.get_all("Host", [])
        if len(hosts) != 1 or hosts[0] not in self.server.hosts:
            raise _Refused(HTTPStatus.FORBIDDEN, "another host")
        if any(o != f"http://{hosts[0]}" for o in self.headers.get_all("Origin", [])):
            raise _Refused(HTTPStatus.FORBIDDEN, "another origin")
        parts = urlsplit(self.path)
        token = parse_qs(parts.query).get("token", [""])[0]
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            raise _Refused(HTTPStatus.FORBIDDEN, "no token, or a wrong one")
        if parts.path not in (_PAGE, _API):
            raise _Refused(HTTPStatus.NOT_FOUND, "nothing here")
        return parts.path

    def log_message(self, format: str, *args: object) -> None:
        """The token would stand in a log."""


def served(page: str) -> str | None:
    """The page allowed to talk to where it came from; None for one that takes no verdicts."""
    closed, opened = (str(escape(f"default-src 'none';{more}")) for more in ("", _HOME))
    takes = 'id="export-verdicts"' in page and closed in page
    return page.replace(closed, opened, 1) if takes else None
