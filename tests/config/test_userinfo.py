"""User and password in a URL: what is shown, what authenticates."""

from __future__ import annotations

import base64
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.config.userinfo import login, masked


def basic(pair: str) -> str:
    """The header for ``user:password``."""
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


@pytest.mark.parametrize(
    ("url", "shown", "plain", "pair"),
    [
        ("http://user:pw@host:1/x", "http://user:***@host:1/x", "http://host:1/x", "user:pw"),
        ("https://user:@host", "https://user:***@host", "https://host", "user:"),
        ("http://:pw@host/", "http://:***@host/", "http://host/", ":pw"),
        ("http://user@host/", "http://user@host/", "http://host/", "user:"),
        ("http://u%3Av:p%40%2F%C3%A9@[::1]:2/", "http://u%3Av:***@[::1]:2/", "http://[::1]:2/", "u:v:p@/\u00e9"),
        ("http://user:p@w:x@host/y@z", "http://user:***@host/y@z", "http://host/y@z", "user:p@w:x"),
        ("HTTP://user:pw@host", "HTTP://user:***@host", "HTTP://host", "user:pw"),
        ("//user:pw@host", "//user:***@host", "//host", "user:pw"),
        ("user:pw@host", "user:***@host", "host", "user:pw"),
    ],
)
def test_the_password_is_shown_as_go_shows_it_and_authenticates_as_in_go(
    url: str, shown: str, plain: str, pair: str
) -> None:
    """Userinfo ends at the last @ of the authority, is percent-decoded, and is sent in UTF-8."""
    assert masked(url) == shown
    assert login(url) == (plain, basic(pair))


@pytest.mark.parametrize(
    "url", ["", "http://host", "http://host:80/a:b@c", "http://[::1]:80/?q=a:b@c", "host:80", "x:"]
)
def test_a_url_without_a_user_is_what_it_is(url: str) -> None:
    """An @ behind the authority is part of the path."""
    assert masked(url) == url
    assert login(url) == (url, "")


@pytest.mark.parametrize("password", ["s3/cr3t", "s3?cr3t", "s3#cr3t", "/cr3t", "s3/cr@3t"])
def test_a_password_that_had_to_be_encoded_is_hidden_and_refused(password: str) -> None:
    """Go takes the port for broken and shows all of it; we do not."""
    url = f"http://user:{password}@host/x"
    assert masked(url) == "http://user:***@host/x"
    with pytest.raises(ValueError, match="percent-encoded") as caught:
        login(url)
    assert password not in str(caught.value)


@given(st.text(st.characters(codec="utf-8"), min_size=1))
def test_no_password_is_shown(password: str) -> None:
    """Whatever is in it: the text is that of any other password."""
    assert masked(f"http://user:{quote(password, safe='')}@host/x") == "http://user:***@host/x"
    assert login(f"http://user:{quote(password, safe='')}@host/x") == ("http://host/x", basic(f"user:{password}"))
