"""`penstock web` against a real instance: HTTP on a port and on a Unix socket."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest
from tests.instance.conftest import PENSTOCK


@pytest.fixture
def simulated(start):
    with start("--nodes=4", "--cores=4", "--gpus=1") as instance:
        yield instance


@contextmanager
def web(instance, *options: str):
    """A `penstock web` that listens; gives its process and the line that it printed."""
    command = [*PENSTOCK, "web", "--uri", instance.uri, *options]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            yield process, process.stdout.readline().strip()
        finally:
            if process.poll() is None:
                process.terminate()
                assert process.wait(timeout=60) == 0


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self._path)


class Visitor:
    """An HTTP client with the cookie that it was sent."""

    def __init__(self, connect) -> None:
        self.connect = connect
        self.cookie = None

    @contextmanager
    def open(self, method: str, target: str, body: str | None = None, **headers: str):
        """Sends a request; gives the response before its body is read."""
        given = {"Cookie": self.cookie, **headers}
        given = {name: text for name, text in given.items() if text}
        connection = self.connect()
        try:
            connection.request(method, target, body, given)
            with connection.getresponse() as response:
                if cookie := response.getheader("set-cookie"):
                    self.cookie = cookie.partition(";")[0]
                yield response
        finally:
            connection.close()

    def request(self, method: str, target: str, body: str | None = None, **headers: str):
        with self.open(method, target, body, **headers) as response:
            return response.status, response.read().decode()

    def get(self, target: str) -> str:
        status, text = self.request("GET", target)
        assert status == 200, text
        return text


def on_port(url: str) -> Visitor:
    port = urlsplit(url).port
    return Visitor(lambda: http.client.HTTPConnection("127.0.0.1", port, timeout=60))


def test_the_printed_address_opens_a_session_and_nothing_else_does(simulated):
    (job,) = simulated.lines("submit", "--job-name=<b>bold</b>", "-n2", "-t1h", "sleep", "1000")
    with web(simulated) as (_, url):
        parts = urlsplit(url)
        assert (parts.scheme, parts.hostname, parts.path) == ("http", "127.0.0.1", "/")
        stranger, visitor = on_port(url), on_port(url)
        assert stranger.request("GET", "/")[0] == 401
        assert stranger.request("GET", f"/jobs/{job}".replace("ƒ", "f"))[0] == 401
        status, _ = visitor.request("GET", f"/?{parts.query}")
        assert status == 303
        assert stranger.request("GET", f"/?{parts.query}")[0] == 401
        assert visitor.request("GET", "/", Host="evil.example")[0] == 421
        assert "1 mixed" in visitor.get("/")
        text = visitor.get(f"/jobs/{job}".replace("ƒ", "f"))
        assert "&lt;b&gt;bold" in text
        assert "<b>" not in text
        assert "cores 0-1: job" in text
        assert "resource_summary" not in text


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become another user")
def test_another_user_on_the_port_gets_401(simulated):
    (job,) = simulated.lines("submit", "-t1h", "--job-name=owners", "sleep", "1000")
    path = f"/jobs/{job}".replace("ƒ", "f")
    script = (
        "import os, socket, sys\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "for request in sys.argv[2:]:\n"
        "    s = socket.socket(); s.connect(('127.0.0.1', int(sys.argv[1])))\n"
        "    s.sendall(f'{request} HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n'.encode())\n"
        "    print(s.recv(12).decode())\n"
    )
    with web(simulated, "--allow-actions") as (_, url):
        visitor = on_port(url)
        visitor.request("GET", f"/?{urlsplit(url).query}")
        assert "owners" in visitor.get(path)
        requests = ["GET /", f"GET {path}", "GET /events", "GET /static/page.js"]
        requests += [f"POST {path}/cancel", f"GET /?{urlsplit(url).query}"]
        done = subprocess.run(
            [PENSTOCK[0], "-c", script, str(urlsplit(url).port), *requests],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.splitlines() == ["HTTP/1.1 401"] * len(requests)
    assert simulated.lines("jobs", "-no", "{state}", job) == ["RUN"]


def test_nothing_is_changed_without_the_option(simulated):
    (job,) = simulated.lines("submit", "-t1h", "sleep", "1000")
    target = f"/jobs/{job}/cancel".replace("ƒ", "f")
    with web(simulated) as (_, url):
        visitor = on_port(url)
        visitor.request("GET", f"/?{urlsplit(url).query}")
        origin = f"http://127.0.0.1:{urlsplit(url).port}"
        assert visitor.request("POST", target, "csrf=x", Origin=origin)[0] == 403
    assert simulated.lines("jobs", "-no", "{state}", job) == ["RUN"]


def test_actions_with_the_option(simulated):
    (job,) = simulated.lines("submit", "-t1h", "sleep", "1000")
    path = f"/jobs/{job}".replace("ƒ", "f")
    with web(simulated, "--allow-actions") as (_, url):
        visitor = on_port(url)
        visitor.request("GET", f"/?{urlsplit(url).query}")
        csrf = visitor.get(path).partition('name="csrf" value="')[2].partition('"')[0]
        origin = f"http://127.0.0.1:{urlsplit(url).port}"
        for target, form in [
            (f"{path}/cancel", {"csrf": csrf}),
            ("/nodes/3/drain", {"csrf": csrf, "reason": "disk <3>"}),
        ]:
            body = urlencode(form)
            assert visitor.request("POST", target, body, Origin="http://x.example")[0] == 403
            assert visitor.request("POST", target, body, Origin=origin)[0] == 303
        assert "canceled" in visitor.get(path)
        text = visitor.get("/nodes/3")
        assert "disk &lt;3&gt;" in text
        assert "<td>drain</td>" in text
    assert simulated.lines("jobs", "-a", "-no", "{result}", job) == ["CANCELED"]


def test_pending_jobs_have_pages_reasons_and_starts(simulated):
    simulated.lines("submit", "-N4", "-n16", "-t1h", "sleep", "1000")
    jobs = simulated.lines("submit", "--cc=1-120", "-N4", "-n16", "-t1h", "sleep", "1")
    with web(simulated) as (_, url):
        visitor = on_port(url)
        visitor.request("GET", f"/?{urlsplit(url).query}")
        first, last = visitor.get("/queue"), visitor.get("/queue?page=3")
        assert "page 1 of 3" in first
        assert "page 3 of 3" in last
        shown = [job for job in jobs if f">{job}<" in last]
        assert shown == jobs[100:]
        assert "in 60 min" in first
        assert "needs 4 nodes with 4 cores" in first
        assert "Nodes" in visitor.get("/nodes?state=allocated")


def test_changes_and_output_are_events(start):
    with start("--nodes=1", "--cores=2", "--exec=local", "--oversubscribe") as instance:
        (job,) = instance.lines("submit", "sh", "-c", "echo '<one>'; read go; echo two")
        with web(instance) as (_, url):
            visitor = on_port(url)
            visitor.request("GET", f"/?{urlsplit(url).query}")
            path = f"/jobs/{job}".replace("ƒ", "f")
            with visitor.open("GET", "/events") as general:
                assert general.getheader("content-type") == "text/event-stream"
                lines = iter(general.readline, b"")
                next(line for line in lines if line == b"event: changed\n")
                instance.lines("submit", "--urgency=0", "true")
                next(line for line in lines if line == b"event: changed\n")
            with visitor.open("GET", f"{path}/events") as stream:
                text = stream.read().decode()
            assert "event: changed\n" in text
            assert "<one>" in text.replace("\\n", "")
            assert "two" in text
            assert text.endswith("event: end\ndata: {}\n\n")
            assert "&lt;one&gt;\ntwo\n</pre>" in visitor.get(path)
            assert "completed" in visitor.get("/history?period=1h")


def test_a_socket_shows_the_owner_all_and_ends_without_a_trace(simulated, tmp_path):
    (job,) = simulated.lines("submit", "-t1h", "sleep", "1000")
    path = tmp_path / "web"
    with web(simulated, "--listen", f"unix:{path}") as (process, where):
        assert where == f"unix:{path}"
        visitor = Visitor(lambda: UnixConnection(str(path)))
        assert f">{job}<" in visitor.get("/running")
        assert visitor.request("GET", "/", Host="evil.example")[0] == 421
        taken = subprocess.run(
            [*PENSTOCK, "web", "--uri", simulated.uri, "--listen", where],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (taken.returncode, "another process listens" in taken.stderr) == (1, True)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0
    assert not path.exists()


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become another user")
@pytest.mark.parametrize(
    ("access", "status"),
    [("", 403), ("allow-guest-user = true", 200)],
    ids=["without guests", "with guests"],
)
def test_a_socket_shows_a_guest_what_the_instance_does(start, tmp_path, access, status):
    config = tmp_path / "config.toml"
    config.write_text(f"[access]\n{access}\n")
    with ExitStack() as stack, start("--nodes=1", "--config", str(config)) as instance:
        (job,) = instance.lines("submit", "-t1h", "--job-name=owners", "sleep", "1000")
        # The guest cannot enter the directories of pytest.
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        Path(folder).chmod(0o711)
        path = Path(folder) / "web"
        with web(instance, "--listen", f"unix:{path}", "--allow-actions"):
            script = (
                "import os, socket, sys\n"
                "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
                "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n"
                "head = 'Host: localhost\\r\\nConnection: close\\r\\n\\r\\n'\n"
                "s.sendall(f'GET {sys.argv[2]} HTTP/1.1\\r\\n{head}'.encode())\n"
                "print(b''.join(iter(lambda: s.recv(65536), b'')).decode())\n"
            )
            texts = {
                target: subprocess.run(
                    [PENSTOCK[0], "-c", script, str(path), target],
                    capture_output=True,
                    text=True,
                    check=True,
                ).stdout
                for target in ("/running", f"/jobs/{job}".replace("ƒ", "f"))
            }
    assert texts["/running"].startswith(f"HTTP/1.1 {status} ")
    assert not any("owners" in text for text in texts.values())
    assert texts[list(texts)[1]].startswith(f"HTTP/1.1 {404 if status == 200 else 403} ")


@pytest.mark.parametrize(
    "address",
    ["0.0.0.0:80", "127.0.0.1", "example.org:80", "unix:relative", "/absolute", "unix:127.0.0.1:1"],
)
def test_other_addresses_are_rejected(simulated, address):
    done = simulated.penstock("web", "--listen", address)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "expected a loopback address" in done.stderr


def test_without_an_instance_there_is_an_error(tmp_path):
    command = [*PENSTOCK, "web", "--uri", f"local://{tmp_path}/none"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, "Traceback" in done.stderr) == (69, False)
