"""Access rules of the review server."""

import http.client
import io
import json
import socket
import ssl
import struct
import subprocess
from collections.abc import Iterator
from http.client import RemoteDisconnected
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import numpy as np
import pytest
from PIL import Image

from sparselabel.data.answers import read_answers
from sparselabel.data.dataset import Dataset
from sparselabel.errors import ConfigError
from sparselabel.review.server import HOST, LONGEST, ReviewServer, shared_at
from tests.review.made_up import CLASSES, make_data, make_server, served


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_data(tmp_path_factory.mktemp("made-up"))


@pytest.fixture
def server(data: Dataset, tmp_path: Path) -> Iterator[ReviewServer]:
    with served(data, tmp_path / "answers.csv") as running:
        yield running


class Reply:
    """What a request got."""

    def __init__(self, found: http.client.HTTPResponse) -> None:
        self.status, self.headers, self.content = found.status, found.headers, found.read()

    @property
    def json(self) -> Any:
        return json.loads(self.content)


def ask(server: ReviewServer, method: str, path: str, body: Any = None, **headers: str | None) -> Reply:
    """A request as the page makes it; ``path`` is behind the token unless it begins with a slash."""
    connection = http.client.HTTPConnection(HOST, server.port, timeout=10)
    address = path if path.startswith("/") else f"/{server.token}/{path}"
    given: dict[str, str | None] = {"Host": f"{HOST}:{server.port}"}
    content = None
    if method == "POST":
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        given |= {"Origin": f"http://{HOST}:{server.port}", "Content-Type": "application/json"}
        given["Content-Length"] = str(len(content))
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    connection.putrequest(method, address, skip_host=True)
    for name, value in given.items():
        if value is not None:
            connection.putheader(name, value)
    connection.endheaders(content)
    try:
        return Reply(connection.getresponse())
    finally:
        connection.close()


def test_the_page_and_its_rules(server: ReviewServer) -> None:
    for path, kind in (("", "text/html"), ("review.js", "text/javascript"), ("review.css", "text/css")):
        reply = ask(server, "GET", path)
        assert (reply.status, reply.headers.get_content_type()) == (200, kind)
        rules = reply.headers["Content-Security-Policy"]
        assert rules.startswith("default-src 'none'; script-src 'self';")
        assert "unsafe" not in rules
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        assert reply.headers["Referrer-Policy"] == "no-referrer"
        assert "http:" not in reply.content.decode().replace("http://www.w3.org/2000/svg", "")
    assert ask(server, "GET", "icon.svg").headers.get_content_type() == "image/svg+xml"
    about = ask(server, "GET", "about").json
    assert (about["classes"], about["goal"], about["summary"]["answered"]) == (list(CLASSES), "labels", 0)


def test_it_listens_to_this_machine_alone(server: ReviewServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    assert server.address == f"http://127.0.0.1:{server.port}/{server.token}/"
    assert len(server.token) == 24


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", "[::1]:80", None])
def test_other_names_of_it_are_refused(server: ReviewServer, host: str | None) -> None:
    assert ask(server, "GET", "about", Host=host).status == 403
    assert ask(server, "POST", "undo", {}, Host=host).status == 403
    assert ask(server, "GET", "about", Host=f"localhost:{server.port}").status == 200


@pytest.mark.parametrize("path", ["/", "/about", "/wrong/about", "//about", "/image/0", "/favicon.ico"])
def test_without_the_token_there_is_nothing(server: ReviewServer, path: str) -> None:
    reply = ask(server, "GET", path)
    assert reply.status == 403
    assert server.token not in reply.content.decode()
    assert ask(server, "POST", path, {}).status == 403


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1", None])
def test_other_pages_may_not_answer(server: ReviewServer, origin: str | None) -> None:
    body = {"row": 0, "class": 1, "answer": "yes"}
    assert ask(server, "POST", "answer", body, Origin=origin).status == 403
    assert server.review.answers.answers == []


@pytest.mark.parametrize(
    "path",
    [
        "../dataset.json", "image/../../data/dataset.json", "image/%2e%2e", "image/-1", "image/0x1",
        "image/%D9%A3", "image/", "map/0", "review.py", "page/index.html", "image/999999999999",
    ],
)  # fmt: skip
def test_nothing_else_is_reachable(server: ReviewServer, path: str) -> None:
    assert ask(server, "GET", path).status == 404
    for row in ("12", "99999999"):
        reply = ask(server, "GET", f"image/{row}")
        assert (reply.status, "rows go to 11" in reply.json["error"]) == (422, True)


def test_images_and_maps(server: ReviewServer) -> None:
    reply = ask(server, "GET", "image/3")
    assert (reply.status, reply.headers["Cache-Control"]) == (200, "private, max-age=3600")
    assert Image.open(io.BytesIO(reply.content)).size == (90, 60)
    reply = ask(server, "GET", "map/3/1")
    assert reply.headers.get_content_type() == "image/png"
    opacity = np.asarray(Image.open(io.BytesIO(reply.content)))[..., 3]
    assert opacity.shape == (60, 90)
    assert opacity[:, :20].min() > 140
    assert opacity[:, -20:].max() < 10


def test_answers_and_undo(server: ReviewServer) -> None:
    reply = ask(server, "POST", "next", {"count": 2, "without": [[0, 1]]})
    first, second = reply.json["questions"]
    assert (first["row"], first["class"], first["answer"]) == (0, 2, None)
    assert (second["row"], second["label"]) == (1, "cat")
    done = ask(server, "POST", "answer", {"row": 0, "class": 2, "answer": "yes"}).json["summary"]
    assert (done["answered"], done["yes"], done["found"], done["can_undo"]) == (1, 1, 1, True)
    (answer,) = read_answers(server.review.answers.path)
    assert (answer.image, answer.label, answer.value) == ("a b0?&#'<.png", CLASSES[2], 1)
    assert answer.reviewer == "ann <b>"
    undone = ask(server, "POST", "undo", {}).json
    (question,) = undone["questions"]
    assert (question["row"], question["before"], undone["summary"]["answered"]) == (0, "yes", 0)
    assert ask(server, "POST", "undo", {}).json["questions"] == []


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("answer", {"row": 0, "class": 1, "answer": "maybe"}, 422),
        ("answer", {"row": 0, "class": 3, "answer": "yes"}, 422),
        ("answer", {"row": -1, "class": 0, "answer": "yes"}, 422),
        ("answer", {"row": "0", "class": 0, "answer": "yes"}, 400),
        ("answer", {"row": True, "class": 0, "answer": "yes"}, 400),
        ("answer", {"class": 0}, 400),
        ("answer", {"row": 0, "class": 0, "answer": "yes", "only": 99}, 422),
        ("answer", {"row": 0, "class": 0, "answer": ["yes"]}, 400),
        ("answer", {"answers": []}, 400),
        ("answer", {"answers": [1]}, 400),
        ("answer", {"answers": [{"row": 0, "class": 1, "answer": "yes"}] * 101}, 400),
        ("answer", {"row": 0, "class": 0, "answer": "yes", "reviewer": "a\nb"}, 400),
        ("answer", {"row": 0, "class": 0, "answer": "yes", "reviewer": "a" * 61}, 400),
        ("answer", {"row": 0, "class": 0, "answer": "yes", "page": ["a"]}, 400),
        ("train", {}, 404),
        ("next", {"count": "many"}, 400),
        ("next", {"without": [1, 2]}, 400),
        ("next", {"class": 7}, 422),
        ("next", b"no json", 400),
        ("next", b"[" * LONGEST, 400),
        ("next", b'{"count": 1e999}', 400),
        ("next", [], 400),
        ("elsewhere", {}, 404),
    ],
)
def test_requests_that_are_not_what_they_must_be(
    server: ReviewServer, path: str, body: Any, status: int
) -> None:
    reply = ask(server, "POST", path, body)
    assert (reply.status, bool(reply.json["error"])) == (status, True)
    assert server.review.answers.answers == []


def test_requests_of_another_kind(server: ReviewServer) -> None:
    assert ask(server, "POST", "next", {}, Content_Type="text/plain").status == 415
    assert ask(server, "POST", "next", {}, Content_Length=str(LONGEST + 1)).status == 413
    assert ask(server, "POST", "next", {}, Content_Length=None).status == 413
    assert ask(server, "POST", "next", {}, Content_Length="1" * 5000).status == 413
    assert ask(server, "DELETE", "about").status == 501


def test_a_full_disk_is_said(server: ReviewServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(entries: Any, reviewer: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(server.review.answers, "add", full)
    reply = ask(server, "POST", "answer", {"row": 0, "class": 1, "answer": "yes"})
    assert (reply.status, "No space left on device" in reply.json["error"]) == (507, True)
    assert ask(server, "GET", "about").json["summary"]["answered"] == 0


def test_a_broken_image_is_asked_about_no_more(tmp_path: Path) -> None:
    data = make_data(tmp_path)
    data.train.path(0).write_bytes(b"no image")
    with served(data, tmp_path / "answers.csv") as server:
        before = ask(server, "POST", "next", {"count": 100}).json["questions"]
        reply = ask(server, "GET", "image/0")
        assert (reply.status, "cannot be read as an image" in reply.json["error"]) == (422, True)
        after = ask(server, "POST", "next", {"count": 100}).json["questions"]
        assert len(before) - len(after) == 2
        assert 0 not in {question["row"] for question in after}


def test_a_closed_browser_prints_nothing(server: ReviewServer, capfd: pytest.CaptureFixture[str]) -> None:
    for content in (b"", b"GET /", f"GET /{server.token}/image/1 HTTP/1.1\r\n".encode()):
        with socket.create_connection((HOST, server.port)) as opened:
            opened.sendall(content)
            # With this the closing is a reset, as that of a browser that is ended is.
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert ask(server, "GET", "about").status == 200
    try:
        raise ConnectionResetError
    except ConnectionResetError:
        server.handle_error(None, ("127.0.0.1", 1))
    assert capfd.readouterr().err == ""
    try:
        raise RuntimeError("a fault of ours")
    except RuntimeError:
        server.handle_error(None, ("127.0.0.1", 1))
    assert "a fault of ours" in capfd.readouterr().err


def test_people_have_names_and_images_of_their_own(server: ReviewServer) -> None:
    pages = [
        {one["row"] for one in ask(server, "POST", "next", {"count": 4, "page": page}).json["questions"]}
        for page in ("a", "b")
    ]
    assert not pages[0] & pages[1]
    body = {"row": 0, "class": 1, "answer": "yes", "reviewer": "bob", "page": "b"}
    assert ask(server, "POST", "answer", body).status == 200
    assert server.review.answers.answers[-1].reviewer == "bob"
    assert ask(server, "POST", "undo", {"reviewer": "cid"}).json["questions"] == []
    assert len(ask(server, "POST", "undo", {"reviewer": "bob"}).json["questions"]) == 1
    assert ask(server, "POST", "finish", {"page": "a"}).json["summary"]["answered"] == 0
    assert pages[0] & {
        one["row"] for one in ask(server, "POST", "next", {"count": 99, "page": "b"}).json["questions"]
    }


def test_questions_that_are_not_there_are_not_shown_either(server: ReviewServer) -> None:
    reply = ask(server, "POST", "next", {"count": 1, "without": [[0, 99], [-1, 0], [10**9, 1], [0, -1]]})
    assert (reply.status, reply.json["questions"][0]["row"]) == (200, 0)


def test_sharing_needs_everything(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    assert shared_at(None, None, None) is None
    for given, lacking in (
        (("box", None, None), "tls_cert"),
        (("box", cert, None), "tls_key"),
        ((None, cert, key), "host"),
    ):
        with pytest.raises(ConfigError) as caught:
            shared_at(*given)
        assert caught.value.what == lacking
    for host in ("0.0.0.0", "::", ""):
        with pytest.raises(ConfigError) as caught:
            shared_at(host, cert, key)
        assert (caught.value.what, caught.value.value) == ("host", host)
    cert.write_text("no certificate")
    shared = shared_at("127.0.0.1", cert, key)
    assert shared is not None
    with pytest.raises(ConfigError) as caught:
        shared.context()
    assert caught.value.what == "tls_cert"


def test_a_shared_review_speaks_tls_to_those_with_the_address(data: Dataset, tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost"],
        capture_output=True, check=False,
    )  # fmt: skip
    if made.returncode:
        pytest.skip("openssl makes no certificate")
    shared = shared_at("localhost", cert, key)
    with served(data, tmp_path / "a.csv", shared=shared) as server:
        assert server.address == f"https://localhost:{server.port}/{server.token}/"
        trusted = ssl.create_default_context(cafile=cert)
        origin = f"https://localhost:{server.port}"

        def post(path: str, body: Any, origin: str = origin) -> Any:
            headers = {"Content-Type": "application/json", "Origin": origin}
            request = Request(server.address + path, json.dumps(body).encode(), headers)
            with urlopen(request, context=trusted, timeout=10) as reply:
                return json.load(reply)

        answer = {"row": 0, "class": 1, "answer": "yes"}
        assert post("answer", answer | {"reviewer": "bob"})["summary"]["answered"] == 1
        for body, other in (
            (answer, origin),
            (answer | {"reviewer": "bob"}, f"http://localhost:{server.port}"),
        ):
            with pytest.raises(HTTPError) as caught:
                post("answer", body, other)
            assert caught.value.code in (403, 422)
            caught.value.close()
        with pytest.raises((URLError, ConnectionError, RemoteDisconnected)):  # what is no TLS gets nothing
            urlopen(f"http://localhost:{server.port}/{server.token}/about", timeout=10)
        assert len(server.review.answers.answers) == 1


def test_a_port_that_is_taken(data: Dataset, tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind((HOST, 0))
        other.listen()
        port = other.getsockname()[1]
        with make_server(data, tmp_path / "answers.csv", port=port) as server:
            assert server.port not in (0, port)
            server.review.answers.close()


def test_a_stalled_request_is_not_called_a_full_disk(
    server: ReviewServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparselabel.review.server._Handler.timeout", 0.2)
    host = f"{HOST}:{server.port}"
    head = f"POST /{server.token}/next HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\n"
    with socket.create_connection((HOST, server.port), timeout=10) as connection:
        connection.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{".encode())
        assert connection.recv(1000).startswith(b"HTTP/1.1 408 ")
