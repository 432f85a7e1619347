"""Chromium for the tests of pages."""

import shutil
from contextlib import contextmanager

import pytest
from selenium import webdriver


@contextmanager
def chromium(size, *logs):
    """With a window of that size, and the logs that a test reads."""
    programs = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in programs:
        pytest.skip("NOT TESTED: Chromium is missing (chromium, chromium-driver of Debian)")
    options = webdriver.ChromeOptions()
    options.binary_location = programs[0]
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", f"--window-size={size}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", dict.fromkeys(logs, "ALL"))
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(programs[1]))
    yield browser
    browser.quit()
