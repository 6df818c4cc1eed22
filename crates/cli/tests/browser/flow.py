"""The main flow in a real browser: logs in by the link that `serve` printed, watches a batch, pauses and resumes it, retries its failures and checks its
cost, with no console error. The script never reloads a page: pages update themselves.

    flow.py LOGIN_LINK BATCH
"""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from chromium import Chromium  # noqa: E402

link, batch = sys.argv[1:3]
site = link.split("/login?")[0]


def tile(name):
    """A script for the number in a tile of the page; null if there is no such tile."""
    return (f"((t) => t ? Number(t.querySelector('b').textContent.replace(/[^0-9.]/g, '')) : null)"
            f"([...document.querySelectorAll('.tile')].find(t => t.querySelector('span').textContent === {json.dumps(name)}))")


def status(word):
    return f"document.querySelector('h1 .pill')?.textContent === {json.dumps(word)}"


with Chromium() as browser:
    browser.screen(1200, 900)
    browser.go(link, f"{site}/")
    browser.go(f"{site}/batches")
    browser.until(f"document.body.innerText.includes({json.dumps(batch)})")
    browser.go(f"{site}/batches/{batch}")
    browser.eval("window.untouched = true")
    print("open", flush=True)
    browser.until(f"{tile('done')} > 2")
    seen = browser.eval(tile("done"))
    browser.until(f"{tile('done')} > {seen}")
    assert browser.eval("window.untouched"), "the page moved by itself, without being loaded anew"
    browser.press("Pause")
    browser.until(status("paused"))
    browser.until(f"{tile('running')} === 0")
    browser.press("Resume")
    browser.until(f"{tile('waiting')} === 0 && {tile('running')} === 0")
    assert browser.eval(f"{tile('failed')} > 0"), "some rows fail"
    browser.until("document.body.innerText.includes('Failures by reason')")
    cost = browser.eval(tile("cost"))
    assert cost and cost > 0, "answers cost something"
    ended = browser.eval(tile("failed"))
    browser.press("Retry failures")
    # The retried rows fail again; each costs another answer.
    browser.until(f"{tile('cost')} > {cost} && {tile('failed')} === {ended} && {tile('waiting')} === 0")
    # A failed row's unit page shows its attempts and masks its payload.
    browser.go(f"{site}/batches/{batch}?state=failed")
    browser.eval("document.querySelector('td a[href^=\"/units/\"]').click()")
    browser.until("document.body.innerText.includes('Failed runs')")
    assert browser.eval("document.querySelector('pre').textContent.includes('•••')")
    for page in ["", "queues", "units", "workers", "pools", "usage", "cron", "dispatch", "audit"]:
        browser.go(f"{site}/{page}")
        browser.until("document.getElementById('live').textContent === 'live'")
        wide = browser.eval("document.documentElement.scrollWidth > document.documentElement.clientWidth")
        assert not wide, f"/{page} is wider than its window"
    browser.screen(390, 844, phone=True)
    for page in ["", "queues", "units", f"batches/{batch}", "usage"]:
        browser.go(f"{site}/{page}")
        wide = browser.eval("document.documentElement.scrollWidth > document.documentElement.clientWidth")
        assert not wide, f"/{page} is wider than a phone"
    assert not browser.complaints, f"the console says: {browser.complaints}"
print("good")
