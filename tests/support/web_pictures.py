"""Pictures of `penstock web` for the documentation, from Chromium.

`make pictures` starts simulated clusters and an instance with a real job, and writes
`docs/images/web-*.png`: the overview, nodes by core and 10,000 nodes in light colours, a job in
dark ones. It needs chromium and chromedriver.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Self

IMAGES = Path(__file__).parents[2] / "docs" / "images"
PENSTOCK = [sys.executable, "-P", "-m", "penstock"]
WIDTH = 1180
TIMEOUT_S = 120.0
# The time of the cluster that the chart of the overview shows.
HISTORY_S = 400.0
# A job that writes something, and stays.
TRAINING = """
import time
for epoch in range(1, 41):
    print(f"epoch {epoch}/40  loss {300 / epoch**0.6:.2f}", flush=True)
time.sleep(1000)
"""


def main() -> None:
    """Writes the pictures."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        sys.exit("chromium and chromedriver are needed: apt-get install chromium chromium-driver")
    with tempfile.TemporaryDirectory() as folder, browser(chromium, driver, folder) as window:
        place = Path(folder)
        options = ["--nodes=48", "--cores=16", "--gpus=2"]
        with Cluster(place / "cluster", *options) as cluster:
            begin = time.monotonic()
            fill_cluster(cluster)
            large_pictures(window, place)
            job_pictures(window, place)
            time.sleep(max(0.0, begin + HISTORY_S - time.monotonic()))
            with pages(window, cluster) as base:
                window.find_element(By.LINK_TEXT, "1h").click()
                wait_for(window, lambda: text_of(window, "#connection") == "live")
                shoot(window, "web-overview", height=780)
                window.get(f"{base}/nodes")
                shoot(window, "web-nodes", height=600)


def fill_cluster(cluster: Cluster) -> None:
    """Submits jobs for the time of the chart and beyond, and drains nodes."""
    random = Random(7)
    for number in range(150):
        nodes, cores = random.choice([(1, 8), (2, 16), (4, 16), (12, 16), (6, 12), (1, 16)])
        seconds = random.uniform(20, 160)
        name = random.choice(["climate", "assemble", "train", "sweep", "post"])
        cluster.run(
            *("submit", "--quiet", f"-N{nodes}", f"-n{nodes}", f"-c{cores}", "-t30m"),
            *(f"-Sexec.test.run_duration={seconds:.0f}s", f"--job-name={name}-{number}", name),
        )
    cluster.run("resource", "drain", "node17", "fan replaced on Monday")
    cluster.run("resource", "drain", "node[40-42]", "new firmware")


def large_pictures(window: webdriver.Chrome, place: Path) -> None:
    """The picture of 10,000 nodes."""
    random = Random(7)
    with Cluster(place / "large", "--nodes=10000", "--cores=8") as cluster:
        for number in range(55):
            nodes, cores = random.randint(10, 400), random.choice([2, 4, 8, 8])
            size = (f"-N{nodes}", f"-n{nodes}", f"-c{cores}", "-t4h")
            cluster.run("submit", "--quiet", *size, f"--job-name=job-{number}", "model")
        cluster.run("resource", "drain", "node[9220-9239],node[870-949]", "new firmware")
        cluster.run("resource", "drain", "node[77,5123,6100,6731]", "memory error")
        with pages(window, cluster):
            shoot(window, "web-10000-nodes", height=760, part="#map-title")


def job_pictures(window: webdriver.Chrome, place: Path) -> None:
    """The picture of a job, in dark colours."""
    with Cluster(
        place / "local", "--nodes=2", "--cores=8", "--exec=local", "--oversubscribe"
    ) as cluster:
        command = [sys.executable, "-c", TRAINING]
        size = ("-N2", "-n2", "-c6", "-t30m", "--job-name=train")
        (job,) = cluster.run("submit", *size, *command)
        with pages(window, cluster) as base:
            use_colours(window, "dark")
            window.get(f"{base}/jobs/{job}")
            wait_for(window, lambda: "epoch 40/40" in text_of(window, "#output"))
            shoot(window, "web-job-dark", height=None)
            use_colours(window, "light")


@contextmanager
def browser(chromium: str, driver: str, folder: str) -> Iterator[webdriver.Chrome]:
    """A window without a screen, in light colours."""
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "hide-scrollbars"):
        options.add_argument(f"--{argument}")
    options.add_argument(f"--user-data-dir={folder}/profile")
    window = webdriver.Chrome(options=options, service=Service(driver))
    try:
        use_colours(window, "light")
        yield window
    finally:
        window.quit()


def use_colours(window: webdriver.Chrome, scheme: str) -> None:
    """Tells pages which colours the system has."""
    feature = {"name": "prefers-color-scheme", "value": scheme}
    window.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


class Cluster:
    """An instance, in a `with` block."""

    def __init__(self, state: Path, *options: str) -> None:
        self._socket = state / "socket"
        self._environment = os.environ | {
            "PENSTOCK_URI": f"local://{self._socket}",
            "LC_ALL": "C.UTF-8",
        }
        # The command tells that the socket accepts, and ends the instance with its input.
        told = ("--", "sh", "-c", "echo accepting; cat > /dev/null")
        self._daemon = subprocess.Popen(
            [*PENSTOCK, "start", *options, f"--state={state}", f"--socket={self._socket}", *told],
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __enter__(self) -> Self:
        assert self._daemon.stdout is not None
        if not self._daemon.stdout.readline():
            raise RuntimeError("the instance does not start")
        return self

    def __exit__(self, *error: object) -> None:
        self._daemon.communicate()

    def run(self, *words: str) -> list[str]:
        """Runs a command in the instance; returns the lines that it prints."""
        done = subprocess.run(
            [*PENSTOCK, *words],
            env=self._environment,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        return done.stdout.splitlines()

    def open(self, *words: str) -> subprocess.Popen[str]:
        """Starts a command in the instance, whose output is read."""
        return subprocess.Popen(
            [*PENSTOCK, *words],
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )


@contextmanager
def pages(window: webdriver.Chrome, cluster: Cluster) -> Iterator[str]:
    """The overview of an instance in the window; gives the address of its pages."""
    server = cluster.open("web")
    try:
        assert server.stdout
        url = server.stdout.readline().strip()
        window.get(url)
        wait_for(window, lambda: text_of(window, "#connection") == "live")
        yield url.partition("/?")[0]
    finally:
        server.terminate()
        server.wait()


def set_size(window: webdriver.Chrome, height: int) -> None:
    """Sets the size of the page's visible part."""
    size = {"width": WIDTH, "height": height, "deviceScaleFactor": 1, "mobile": False}
    window.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def text_of(window: webdriver.Chrome, selector: str) -> str:
    """The text of an element."""
    return window.find_element(By.CSS_SELECTOR, selector).text


def wait_for(window: webdriver.Chrome, condition: Callable[[], bool]) -> None:
    """Waits until a condition on the page holds."""
    WebDriverWait(window, TIMEOUT_S).until(lambda _: condition())


def shoot(
    window: webdriver.Chrome, name: str, *, height: int | None, part: str | None = None
) -> None:
    """Writes a picture of the page: its top, or from an element on; all of it without a height."""
    set_size(window, height or 800)
    if height is None:
        set_size(window, window.execute_script("return document.documentElement.scrollHeight"))
    wait_for(window, lambda: text_of(window, "#connection") == "live")
    if part is not None:
        window.execute_script("document.querySelector(arguments[0]).scrollIntoView()", part)
    (IMAGES / f"{name}.png").write_bytes(window.get_screenshot_as_png())


if __name__ == "__main__":
    main()
