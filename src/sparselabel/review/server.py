"""The server of a review: on this machine alone unless it is shared, behind a token, nothing but the review.

    GET  /TOKEN/                      the page, its style and its script
    GET  /TOKEN/image/ROW             an image, as JPEG
    GET  /TOKEN/small/ROW             the same, small
    GET  /TOKEN/map/ROW/CLASS         where the model sees a class in it, as PNG
    GET  /TOKEN/about                 what the page has to know once
    GET  /TOKEN/training              how far training with the answers is
    POST /TOKEN/next                  {"count", "class" or null, "grid", "without": [[row, class], ...]}
    POST /TOKEN/answer                {"row", "class", "answer": yes, no or skip}, or {"answers": [these]}
    POST /TOKEN/undo                  {}
    POST /TOKEN/finish                {}: the page has no use for its images any more
    POST /TOKEN/train                 {}: train with the answers

Every POST may say who asks: {"page": an id of the window, "reviewer": a name}. Other addresses, other hosts
and other pages' requests are refused: a page on the web that finds the port can neither read nor write, and a
name that somebody points at this machine does not help it. On a network it speaks TLS only.
"""

import errno
import hmac
import io
import json
import secrets
import socket
import ssl
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from sparselabel.data.dataset import PreparedSplit
from sparselabel.data.thumbnails import palette, stretched
from sparselabel.data.transforms import View, draw
from sparselabel.errors import ConfigError, SparselabelError, param
from sparselabel.review.complete_images import CompleteImageReview
from sparselabel.review.retrain import Retraining
from sparselabel.review.session import Review

SIDE, SMALL_SIDE, MAP_SIDE = 1400, 400, 480  # pixels of the long side
STRONG = 150  # opacity, of 255, of the highest logit of a map; the image is seen through lower ones


class Images:
    """A split's images as JPEG, and their heat maps as PNG to be laid over them; by row, never by path."""

    def __init__(
        self, split: PreparedSplit, view: View, maps: Callable[[int], npt.NDArray[np.floating]]
    ) -> None:
        self._split, self._view, self._maps = split, view, maps
        self.image = lru_cache(64)(self._image)
        self.small = lru_cache(256)(lambda row: self._image(row, SMALL_SIDE)[0])

    def _image(self, row: int, side: int = SIDE) -> tuple[bytes, tuple[int, int]]:
        """The image, and its width and height."""
        image = self._split.image(row, side)
        image.thumbnail((side, side))
        stream = io.BytesIO()
        image.save(stream, "JPEG", quality=88)
        return stream.getvalue(), image.size

    def heat_map(self, row: int, column: int) -> bytes:
        """A heat map of a class over the whole image, transparent where the model does not see it."""
        _, (width, height) = self.image(row)
        scale = min(1.0, MAP_SIDE / max(width, height))
        size = max(1, round(width * scale)), max(1, round(height * scale))
        left, top, wide, high = draw(self._view, (0, 0, 0, 0), width, height)[:4].tolist()
        seen = max(1, round(wide * size[0])), max(1, round(high * size[1]))
        cells = stretched(self._maps(row)[column].astype(np.float32))
        smooth = np.asarray(Image.fromarray(cells).resize(seen, Image.Resampling.BILINEAR)).clip(0, 1)
        opacity = (STRONG * smooth**2).round().astype(np.uint8)
        colored = np.dstack([palette()[(255 * smooth).round().astype(np.uint8)], opacity])
        whole = Image.new("RGBA", size)
        whole.paste(Image.fromarray(colored), (round(left * size[0]), round(top * size[1])))
        stream = io.BytesIO()
        whole.save(stream, "PNG", compress_level=3)
        return stream.getvalue()


HOST, PORT = "127.0.0.1", 8765
LONGEST = 200_000  # bytes of a request
MOST = 100  # questions and answers at a time
LONGEST_NAME = 60
STATIC = {
    "": ("index.html", "text/html; charset=utf-8"),
    "review.css": ("review.css", "text/css; charset=utf-8"),
    "icon.svg": ("icon.svg", "image/svg+xml"),
    "review.js": ("review.js", "text/javascript; charset=utf-8"),
}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class RefusedError(Exception):
    """A request that gets no answer but this."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


@dataclass(frozen=True)
class Shared:
    """The address of a review on a network: a name of this machine, and its TLS files."""

    host: str
    certificate: Path
    key: Path

    def context(self) -> ssl.SSLContext:
        """TLS with these files; refuses files that are none."""
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            # Without a password: a key that asks for one would stop here, and wait.
            made.load_cert_chain(self.certificate, self.key, password="")
        except OSError as error:  # also what ssl has against them
            both = f"{self.certificate} and {self.key}"
            raise ConfigError(
                f"{both} are no TLS certificate with its key ({error.strerror or error})",
                "give PEM files that belong together, a key without a password",
                what="tls_cert",
                value=self.certificate,
            ) from error
        return made


def shared_at(host: str | None, certificate: Path | None, key: Path | None) -> Shared | None:
    """The address to share a review at, or None for this machine alone; raises for a network without TLS."""
    if host is None and certificate is None and key is None:
        return None
    if host is None or certificate is None or key is None:
        given = {"host": host, "tls_cert": certificate, "tls_key": key}
        lacking = [name for name, value in given.items() if value is None]
        raise ConfigError(
            "a review is shared on a network only with TLS, so that nobody can read the address on its way",
            f"give {' and '.join(param(name) for name in lacking)} too",
            "leave all three out: it is for this machine alone then, and ssh can forward its port",
            what=lacking[0],
        )
    try:
        every = ip_address(host).is_unspecified
    except ValueError:
        every = False  # a name
    if every or not host:
        raise ConfigError(
            f"{param('host', host)} is no address that anybody could open",
            "give the name or address of this machine that people open",
            what="host",
            value=host,
        )
    return Shared(host, certificate, key)


class ReviewServer(ThreadingHTTPServer):
    """Serves one review; ``address`` is what to open in a browser.

    ``finish`` is called when somebody is done, and returns what the page tells then.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(
        self,
        review: Review | CompleteImageReview,
        images: Images,
        about: dict[str, Any],
        port: int = PORT,
        *,
        shared: Shared | None = None,
        retraining: Retraining | None = None,
        finish: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        self.review, self.images, self.about = review, images, about
        self.shared, self.retraining, self.finish = shared, retraining, finish
        self.token = secrets.token_urlsafe(18)
        context = shared.context() if shared else None
        self.host = shared.host if shared else HOST
        self.address_family, bound = _resolved(self.host)
        try:
            super().__init__((bound, port), _Handler)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise ConfigError(
                    f"nothing can listen at {self.host} ({error.strerror})",
                    "give a name or address of this machine",
                    what="host",
                    value=self.host,
                ) from error
            super().__init__((bound, 0), _Handler)  # any that is free
        if context is not None:
            # The handshake waits for the connection's own thread: a silent client holds up nobody else.
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a browser that was closed, or of what was no TLS; of all else a traceback."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self.server_address[1])

    @property
    def address(self) -> str:
        """The page's address, with the token."""
        return f"{self.scheme}://{self.hosts[0]}/{self.token}/"

    @property
    def scheme(self) -> str:
        """Http on this machine, https on a network."""
        return "https" if self.shared else "http"

    @property
    def hosts(self) -> tuple[str, ...]:
        """The host names that browsers use; the first is its address."""
        if self.shared is None:
            return f"{HOST}:{self.port}", f"localhost:{self.port}"
        name = f"[{self.host}]" if ":" in self.host else self.host
        # Browsers leave out the port that goes without saying.
        return (f"{name}:{self.port}", *([name] if self.port == 443 else []))


def _resolved(host: str) -> tuple[socket.AddressFamily, str]:
    """The kind of a host's address, and the address."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        remedy = "give a name or address of this machine"
        raise ConfigError(f"nobody knows {host!r}", remedy, what="host", value=host) from error
    return family, str(address[0])


class _Handler(BaseHTTPRequestHandler):
    server: ReviewServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "sparselabel", ""
    timeout = 60  # seconds that an idle connection is kept

    def do_GET(self) -> None:
        self._serve(self._get)

    def do_POST(self) -> None:
        self._serve(self._post)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing: the terminal is for the address and the end."""

    def _serve(self, work: Any) -> None:
        try:
            self._refuse_strangers()
            status, kind, content, keep = work(self._path())
        except RefusedError as refused:
            # What is left of the request was not read: the connection cannot be used again.
            self.close_connection = True
            status, kind, content, keep = refused.status, *_json({"error": str(refused)})
        except SparselabelError as error:
            status, kind, content, keep = HTTPStatus.UNPROCESSABLE_ENTITY, *_json({"error": str(error)})
        except OSError as error:
            why = f"the answer could not be saved ({error.strerror or error}): make room, then answer again"
            status, kind, content, keep = HTTPStatus.INSUFFICIENT_STORAGE, *_json({"error": why})
        try:
            self.send_response(status)
            for name, value in HEADERS.items():
                self.send_header(name, value)
            self.send_header("Cache-Control", "private, max-age=3600" if keep else "no-store")
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the page has gone on without waiting

    def _refuse_strangers(self) -> None:
        """Raise unless the request comes for this server by its own name, with the token."""
        if self.headers.get("Host") not in self.server.hosts:
            raise RefusedError(HTTPStatus.FORBIDDEN, "this is not a name of this server")
        token = self.path.split("/", 2)[1] if self.path.startswith("/") else ""
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            raise RefusedError(HTTPStatus.FORBIDDEN, "the address has not the token that the terminal shows")

    def _path(self) -> list[str]:
        """The parts of the address behind the token."""
        return self.path.partition("?")[0].split("/")[2:]

    def _get(self, parts: list[str]) -> tuple[HTTPStatus, str, bytes, bool]:
        match parts:
            case [name] if name in STATIC:
                file, kind = STATIC[name]
                return HTTPStatus.OK, kind, (files(__package__) / "page" / file).read_bytes(), False
            case ["about"]:
                return HTTPStatus.OK, *_json(self.server.about | {"summary": self.server.review.summary()})
            case ["training"] if self.server.retraining is not None:
                return HTTPStatus.OK, *_json(self.server.retraining.status())
            case ["image" | "small" as size, row]:
                number, images = _number(row), self.server.images
                self._refuse_unknown(number, 0)
                try:
                    content = images.small(number) if size == "small" else images.image(number)[0]
                    return HTTPStatus.OK, "image/jpeg", content, True
                except SparselabelError:
                    self.server.review.unreadable(number)
                    raise
            case ["map", row, column]:
                self._refuse_unknown(_number(row), _number(column))
                content = self.server.images.heat_map(_number(row), _number(column))
                return HTTPStatus.OK, "image/png", content, True
        raise RefusedError(HTTPStatus.NOT_FOUND, "there is nothing at this address")

    def _post(self, parts: list[str]) -> tuple[HTTPStatus, str, bytes, bool]:
        origins = [f"{self.server.scheme}://{host}" for host in self.server.hosts]
        if self.headers.get("Origin") not in origins:
            raise RefusedError(HTTPStatus.FORBIDDEN, "only the review's own page may answer")
        given = self._body()
        review = self.server.review
        try:
            page = _page(given)
            match parts:
                case ["next"]:
                    column = self._class_or_none(given.get("class"))
                    without = [(int(row), int(one)) for row, one in given.get("without", [])]
                    count = max(1, min(MOST, int(given.get("count", 1))))
                    kind = {name: given.get(name) is True for name in ("skipped", "grid")}
                    questions = review.next(count, column, without, page=page, **kind)
                    return HTTPStatus.OK, *_json({"questions": questions, "summary": review.summary(column)})
                case ["answer"]:
                    every = given.get("answers", [given])
                    if not 1 <= len(every) <= MOST:
                        raise RefusedError(HTTPStatus.BAD_REQUEST, f"a request has 1 to {MOST} answers")
                    for one in every:
                        self._refuse_unknown(one["row"], one.get("class", 0))
                    only = self._class_or_none(given.get("only"))
                    review.take(given, self._reviewer(given))
                    review.leases.renew(page)
                    return HTTPStatus.OK, *_json({"summary": review.summary(only)})
                case ["undo"]:
                    only = self._class_or_none(given.get("only"))
                    questions = review.take_back(self._reviewer(given))
                    return HTTPStatus.OK, *_json({"questions": questions, "summary": review.summary(only)})
                case ["finish"]:
                    review.leases.release(page)
                    return HTTPStatus.OK, *_json(self.server.finish() | {"summary": review.summary()})
                case ["train"] if self.server.retraining is not None:
                    self.server.retraining.start()
                    return HTTPStatus.OK, *_json(self.server.retraining.status())
        except (TypeError, ValueError, KeyError, OverflowError, AttributeError) as error:
            if isinstance(error, SparselabelError):
                raise
            raise RefusedError(
                HTTPStatus.BAD_REQUEST, f"the request is not what it must be: {error!r}"
            ) from error
        raise RefusedError(HTTPStatus.NOT_FOUND, "there is nothing at this address")

    def _body(self) -> dict[str, Any]:
        length = self.headers.get("Content-Length", "")
        # Python makes no number of thousands of digits: how many there are is looked at first.
        if not length.isdecimal() or len(length) > len(str(LONGEST)) or int(length) > LONGEST:
            raise RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a request has at most {LONGEST} bytes")
        if self.headers.get_content_type() != "application/json":
            raise RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "a request must be JSON")
        try:
            given = json.loads(self.rfile.read(int(length)))
        except TimeoutError as error:
            raise RefusedError(HTTPStatus.REQUEST_TIMEOUT, "the request did not come whole") from error
        except (ValueError, RecursionError) as error:
            raise RefusedError(HTTPStatus.BAD_REQUEST, f"the request is not JSON: {error}") from error
        if not isinstance(given, dict):
            raise RefusedError(HTTPStatus.BAD_REQUEST, "a request must be a JSON object")
        return given

    def _reviewer(self, given: dict[str, Any]) -> str | None:
        """The reviewer of a request; None for the person who started the review, never on a network."""
        name = given.get("reviewer")
        if not name:
            if self.server.shared is not None:
                raise RefusedError(
                    HTTPStatus.UNPROCESSABLE_ENTITY, "say who you are: the answers need a name"
                )
            return None
        if not isinstance(name, str) or len(name) > LONGEST_NAME or not name.isprintable():
            rule = f"a name has at most {LONGEST_NAME} letters, and no line breaks"
            raise RefusedError(HTTPStatus.BAD_REQUEST, rule)
        return name

    def _class_or_none(self, column: Any) -> int | None:
        if column is None:
            return None
        self._refuse_unknown(0, column)
        return int(column)

    def _refuse_unknown(self, row: Any, column: Any) -> None:
        if type(row) is not int or type(column) is not int:
            raise RefusedError(HTTPStatus.BAD_REQUEST, "an image and a class are given by their numbers")
        self.server.review.refuse_unknown(row, column)


def _json(content: Any) -> tuple[str, bytes, bool]:
    return "application/json", json.dumps(content).encode(), False


def _page(given: dict[str, Any]) -> str:
    """The window that asks."""
    page = given.get("page", "")
    if not isinstance(page, str) or len(page) > LONGEST_NAME:
        raise RefusedError(HTTPStatus.BAD_REQUEST, "a page is named by a short text")
    return page


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise RefusedError(HTTPStatus.NOT_FOUND, "there is nothing at this address")
    return int(text)
