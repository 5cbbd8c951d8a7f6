"""A folder behind HTTP on this machine, with ranges, as object stores have them."""

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class Ranges(SimpleHTTPRequestHandler):
    """Files, or the bytes of them that are asked for."""

    asked: list[str]
    refused = 0
    """So many of the next requests fail."""

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if Ranges.refused:
            Ranges.refused -= 1
            self.send_error(503)
            return
        file, wanted = Path(self.translate_path(self.path)), self.headers.get("Range")
        if wanted is None or not file.is_file():
            super().do_GET()
            return
        content = file.read_bytes()
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        part = content[int(first) : int(last) + 1 if last else None]
        self.send_response(206)
        self.send_header("Content-Length", str(len(part)))
        self.send_header("Content-Range", f"bytes {first}-{int(first) + len(part) - 1}/{len(content)}")
        self.end_headers()
        self.wfile.write(part)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """The folder's address, and the paths that are asked for."""
    asked: list[str] = []
    handler = type("Handler", (Ranges,), {"asked": asked})
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
