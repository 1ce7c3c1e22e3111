"""The page of `contml explore` in a browser."""

from contextlib import contextmanager


@contextmanager
def opened(chromium, url, width=1280, height=900, **options):
    """A page whose console has no error and that asks for nothing from elsewhere."""
    page = chromium.new_page(viewport={"width": width, "height": height}, **options)
    problems = []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("dialog", lambda dialog: problems.append(dialog.message) or dialog.dismiss())
    page.on("requestfailed", lambda request: problems.append(request.url))
    start = url.rsplit("/", 1)[0]
    page.on("request", lambda r: r.url.startswith((start, "data:", "blob:")) or problems.append(r.url))
    page.goto(url)
    try:
        yield page
        assert problems == [], problems
        assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
    finally:
        page.close()


def rows(page, part):
    """The rows of a list of neighbours, or of the queries."""
    return [int(each.get_attribute("data-row")) for each in page.query_selector_all(f"{part} [data-row]")]


def query(page):
    return page.inner_text("#query h2")
