"""Chromium for the tests of pages."""

import shutil

import pytest

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def browser():
    from playwright import sync_api as playwright

    if CHROMIUM is None:
        pytest.skip("no chromium on this machine; on Debian: apt-get install chromium")
    with playwright.sync_playwright() as p:
        started = p.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield started
        started.close()
