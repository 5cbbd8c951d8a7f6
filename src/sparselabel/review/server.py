"""The server of a review: on this machine alone, behind a token, and nothing but the review.

    GET  /TOKEN/                      the page, its style and its script
    GET  /TOKEN/image/ROW           a training image, as JPEG
    GET  /TOKEN/map/ROW/CLASS         where the model sees a class in it, as PNG
    GET  /TOKEN/about                 what the page has to know once
    POST /TOKEN/next                  {"count", "class" or null, "without": [[row, class], ...]}
    POST /TOKEN/answer                {"row", "class", "answer": yes, no or skip}
    POST /TOKEN/undo                  {}

Other addresses, other hosts and other pages' requests are refused: a page on the web that finds the port can
neither read nor write, and a name that somebody points at this machine does not help it.
"""

import errno
import hmac
import io
import json
import secrets
import sys
from collections.abc import Callable
from functools import lru_cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from sparselabel.data.dataset import PreparedSplit
from sparselabel.data.thumbnails import palette, stretched
from sparselabel.data.transforms import View, draw
from sparselabel.errors import SparselabelError
from sparselabel.review.complete_images import CompleteImageReview
from sparselabel.review.session import Review

SIDE, MAP_SIDE = 1400, 480  # pixels of the long side
STRONG = 150  # opacity, of 255, of the highest logit of a map; the image is seen through lower ones


class Images:
    """A split's images as JPEG, and their heat maps as PNG to be laid over them; by row, never by path."""

    def __init__(
        self, split: PreparedSplit, view: View, maps: Callable[[int], npt.NDArray[np.floating]]
    ) -> None:
        self._split, self._view, self._maps = split, view, maps
        self.image = lru_cache(64)(self._image)

    def _image(self, row: int) -> tuple[bytes, tuple[int, int]]:
        """The image, and its width and height."""
        image = self._split.image(row, SIDE)
        image.thumbnail((SIDE, SIDE))
        stream = io.BytesIO()
        image.save(stream, "JPEG", quality=88)
        return stream.getvalue(), image.size

    def heat_map(self, row: int, column: int) -> bytes:
        """Where the model sees a class: clear where it does not, over all of the image."""
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
MOST = 100  # questions at a time
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


class ReviewServer(ThreadingHTTPServer):
    """Serves one review; ``address`` is what to open in a browser."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(
        self, review: Review | CompleteImageReview, images: Images, about: dict[str, Any], port: int = PORT
    ) -> None:
        self.review, self.images, self.about = review, images, about
        self.token = secrets.token_urlsafe(18)
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            super().__init__((HOST, 0), _Handler)  # any that is free

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of connections that others break off: the terminal is for the address and the end."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.server_address[1])

    @property
    def address(self) -> str:
        """The page's address, with the token."""
        return f"http://{HOST}:{self.port}/{self.token}/"

    @property
    def hosts(self) -> tuple[str, str]:
        """What browsers on this machine call it."""
        return f"{HOST}:{self.port}", f"localhost:{self.port}"


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
            case ["image", row]:
                number = _number(row)
                self._refuse_unknown(number, 0)
                try:
                    return HTTPStatus.OK, "image/jpeg", self.server.images.image(number)[0], True
                except SparselabelError:
                    self.server.review.unreadable(number)
                    raise
            case ["map", row, column]:
                self._refuse_unknown(_number(row), _number(column))
                content = self.server.images.heat_map(_number(row), _number(column))
                return HTTPStatus.OK, "image/png", content, True
        raise RefusedError(HTTPStatus.NOT_FOUND, "there is nothing at this address")

    def _post(self, parts: list[str]) -> tuple[HTTPStatus, str, bytes, bool]:
        if self.headers.get("Origin") not in [f"http://{host}" for host in self.server.hosts]:
            raise RefusedError(HTTPStatus.FORBIDDEN, "only the review's own page may answer")
        given = self._body()
        review = self.server.review
        try:
            match parts:
                case ["next"]:
                    column = self._class_or_none(given.get("class"))
                    without = [(int(row), int(one)) for row, one in given.get("without", [])]
                    count = max(1, min(MOST, int(given.get("count", 1))))
                    questions = review.next(count, column, without, skipped=given.get("skipped") is True)
                    return HTTPStatus.OK, *_json({"questions": questions, "summary": review.summary(column)})
                case ["answer"]:
                    self._refuse_unknown(given["row"], given.get("class", 0))
                    only = self._class_or_none(given.get("only"))
                    review.take(given)
                    return HTTPStatus.OK, *_json({"summary": review.summary(only)})
                case ["undo"]:
                    only = self._class_or_none(given.get("only"))
                    question = review.take_back()
                    return HTTPStatus.OK, *_json({"question": question, "summary": review.summary(only)})
        except (TypeError, ValueError, KeyError, OverflowError) as error:
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


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise RefusedError(HTTPStatus.NOT_FOUND, "there is nothing at this address")
    return int(text)
