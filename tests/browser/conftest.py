import shutil

import pytest

ALONE = "headless=new no-sandbox disable-gpu disable-quic no-first-run disable-background-networking"
ALONE += " disable-component-update disable-sync window-size=1280,1000"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    from selenium import webdriver

    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.fail("no chromium and chromedriver here: apt install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for word in [*ALONE.split(), f"user-data-dir={tmp_path_factory.mktemp('profile')}"]:
        options.add_argument(f"--{word}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield browser
    browser.quit()
