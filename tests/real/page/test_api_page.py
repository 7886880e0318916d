"""The API as a page, in a real browser: it can be read and tried under the service's own policy."""

from __future__ import annotations

import json


def test_a_request_is_tried_on_the_page(tab, address):
    tab.go(f"{address}/api")
    tab.until("document.querySelectorAll('main section').length > 30")
    form = "document.querySelector('[id=\"post-search\"] form')"
    tab.see(f"{form}.closest('details').open = true")
    tab.see(f"{form}.requestSubmit()")
    tab.until(f"{form}.querySelector('output').textContent.startsWith('200')")
    shown = tab.see(f"{form}.querySelector('output').textContent")
    assert len(json.loads(shown.partition("\n")[2])["hits"]) == 5
    # The style sheet of the page has been let in, and nothing came from elsewhere.
    assert tab.see("getComputedStyle(document.body).maxWidth") == "1216px"
    assert tab.see("performance.getEntriesByType('resource').every((one) => one.name.startsWith(location.origin))")
    assert tab.see("document.documentElement.scrollWidth <= innerWidth")


def test_a_key_is_asked_for_where_one_is_needed(tab, keyed):
    address, read, _ = keyed
    tab.go(f"{address}/api")
    form = "document.querySelector('[id=\"get-info\"] form')"
    tab.until(f"{form} !== null")
    tab.see(f"{form}.closest('details').open = true")
    tab.see(f"{form}.requestSubmit()")
    tab.until(f"{form}.querySelector('input[type=password]') !== null")
    tab.write(read)
    tab.press("Enter")
    tab.until(f"{form}.querySelector('output').textContent.startsWith('200')")
