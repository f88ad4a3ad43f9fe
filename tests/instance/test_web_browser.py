"""The pages in a real browser: Chromium, driven by Selenium. `make test-web` fails without it."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager

import pytest
from axe_core_python.selenium import Axe
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.expected_conditions import alert_is_present
from selenium.webdriver.support.ui import WebDriverWait
from tests.instance.test_web import web

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
HANG_S = 60

pytestmark = pytest.mark.skipif(
    not (BROWSER and DRIVER) and "PENSTOCK_NEED_BROWSER" not in os.environ,
    reason="needs chromium and chromedriver: `make test-web` fails without them",
)


class Page:
    """A browser window."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver
        self.base = ""

    def open(self, path: str) -> None:
        self.driver.get(self.base + path)

    def all(self, selector: str):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def wait_for(self, condition):
        """Waits until a condition on the page holds; returns its value."""
        return WebDriverWait(self.driver, HANG_S, ignored_exceptions=[Exception]).until(
            lambda _: condition()
        )

    def wait_for_text(self, selector: str, text: str) -> None:
        self.wait_for(lambda: text in self.one(selector).text)

    def messages(self) -> list[str]:
        """The errors and warnings of the browser, such as violations of the policy."""
        return [entry["message"] for entry in self.driver.get_log("browser")]


@pytest.fixture
def page(tmp_path):
    options = webdriver.ChromeOptions()
    assert BROWSER, "chromium is not installed: apt-get install chromium chromium-driver"
    assert DRIVER, "chromedriver is not installed: apt-get install chromium chromium-driver"
    options.binary_location = BROWSER
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--window-size=1200,900",
        f"--user-data-dir={tmp_path}/profile",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        yield Page(driver)
    finally:
        driver.quit()


@contextmanager
def opened(page: Page, instance, *options: str):
    """The pages of an instance; the browser has nothing to complain about at the end."""
    with web(instance, *options) as (_, url):
        page.driver.get(url)
        page.base = url.partition("/?")[0]
        # The token is not in the address, nor in the history.
        assert page.driver.current_url == f"{page.base}/"
        assert page.driver.execute_script("return history.length") <= 2
        assert page.driver.execute_script("return document.cookie") == ""
        page.wait_for_text("#connection", "live")
        yield
        assert page.messages() == []


def test_pages_are_live_and_text_of_jobs_is_inert(page, start, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with (
        start("--nodes=1", "--cores=4", "--exec=local", "--oversubscribe") as instance,
        opened(page, instance),
    ):
        assert page.one("#last").text == "None."
        name = "<img src=x onerror=document.title='gone'>"
        script = f"echo '<b>bold</b>'; cat '{gate}'"
        (job,) = instance.lines("submit", f"--job-name={name}", "sh", "-c", script)
        # It appears by itself.
        page.wait_for_text("#last", name)
        page.one("#last a.id").click()
        page.wait_for_text("#output", "<b>bold</b>")
        gate.write_text("last")
        page.wait_for_text("#output", "<b>bold</b>\nlast")
        page.wait_for_text("#facts", "completed")
        assert page.all("#output b") == []
        assert page.all("main img") == []
        assert job in page.driver.title
        # The end of the job is in the list of events without a reload.
        page.wait_for_text("#timeline", "clean")


def test_the_map_is_read_with_the_keyboard(page, start):
    with start("--nodes=10000", "--cores=2") as instance:
        instance.lines("resource", "drain", "141", "bad <disk>")
        with opened(page, instance):
            assert "10\u202f000" in page.one("#numbers").text
            assert "9\u202f999 free" in page.one("#map").text
            drawing = page.one(".map")
            assert drawing.rect["width"] <= 1200
            # A node is some pixels wide.
            assert drawing.rect["width"] / int(drawing.get_attribute("data-columns")) >= 7
            columns = int(drawing.get_attribute("data-columns"))
            assert columns < 141
            drawing.send_keys(Keys.ARROW_RIGHT)
            page.wait_for_text("#map-label", "rank 0: node0, free, 0 of 2")
            drawing.send_keys(Keys.ARROW_DOWN, *[Keys.ARROW_RIGHT] * (141 - columns))
            page.wait_for_text("#map-label", "rank 141: node141, drained")
            drawing.send_keys(Keys.ENTER)
            page.wait_for(lambda: page.driver.current_url.endswith("/nodes/141"))
            assert "bad <disk>" in page.one("main").text
            page.open("/")
            page.one("#unavailable summary").click()
            page.one("#unavailable a").send_keys(Keys.ENTER)
            page.wait_for(lambda: page.driver.current_url.endswith("/nodes/141"))


def test_a_refresh_keeps_the_focus(page, start):
    with start("--nodes=2") as instance:
        (first,) = instance.lines("submit", "-t1h", "true")
        with opened(page, instance):
            page.open("/running")
            page.wait_for_text("#list", first)
            link = page.one("#list a.id")
            page.driver.execute_script("arguments[0].focus()", link)
            (second,) = instance.lines("submit", "-t1h", "true")
            page.wait_for_text("#list", second)
            focused = page.driver.switch_to.active_element
            assert focused.get_attribute("class") == "id"


def test_a_job_is_cancelled_after_a_question(page, start):
    with start("--nodes=1") as instance:
        (job,) = instance.lines("submit", "-t1h", "true")
        with opened(page, instance, "--allow-actions"):
            page.open(f"/find?q={job}")
            page.wait_for(lambda: job in page.driver.title)
            page.one("button.danger").click()
            WebDriverWait(page.driver, HANG_S).until(alert_is_present()).dismiss()
            assert instance.lines("jobs", "-no", "{state}", job) == ["RUN"]
            page.one("button.danger").click()
            WebDriverWait(page.driver, HANG_S).until(alert_is_present()).accept()
            page.wait_for_text("#facts", "canceled")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_page_violates_a_rule_of_accessibility(page, start, theme):
    with start("--nodes=4", "--cores=4", "--gpus=1") as instance:
        (ended,) = instance.lines("submit", "-t1s", "true")
        instance.lines("wait", ended)
        (job,) = instance.lines("submit", "-n5", "-t1h", "true")
        (pending,) = instance.lines("submit", "-N4", "-n16", "-t1h", "true")
        instance.lines("resource", "drain", "3", "bad disk")
        with opened(page, instance, "--allow-actions"):
            page.driver.execute_script(f"localStorage.setItem('penstock-theme', '{theme}')")
            paths = ["/", "/nodes", "/nodes/0", "/nodes/3", "/queue", "/running", "/history"]
            for path in [*paths, *(f"/find?q={each}" for each in (ended, job, pending))]:
                page.open(path)
                found = Axe().run(page.driver)["violations"]
                assert [(each["id"], each["nodes"][0]["html"]) for each in found] == []


def test_light_and_dark(page, start):
    with start("--nodes=1") as instance, opened(page, instance):

        def background() -> str:
            script = "return getComputedStyle(document.body).backgroundColor"
            return page.driver.execute_script(script)

        def prefer(scheme: str) -> None:
            features = [{"name": "prefers-color-scheme", "value": scheme}]
            page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

        prefer("light")
        light = background()
        prefer("dark")
        dark = background()
        assert light != dark
        page.one("#theme").click()
        assert background() == light
        # The choice is kept.
        page.open("/queue")
        assert background() == light
