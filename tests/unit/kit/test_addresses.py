"""Listening on an address, and what is said of it."""

from __future__ import annotations

import socket

import pytest

from fairlead.kit.addresses import listen_tcp, local_url


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("127.0.0.1:0", "http://127.0.0.1:9402/"),
        (":9402", "http://127.0.0.1:9402/"),
        ("0.0.0.0:9402", "http://127.0.0.1:9402/"),
        ("[::]:9402", "http://127.0.0.1:9402/"),
        ("[::1]:9402", "http://[::1]:9402/"),
        ("node.example:9402", "http://node.example:9402/"),
    ],
)
def test_an_address_that_a_browser_on_the_host_can_call(address: str, url: str):
    assert local_url(address, 9402) == url


def test_an_address_that_is_taken_is_told_in_the_words_of_the_system():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(OSError) as raised:  # noqa: PT011 - its words are looked at below
            listen_tcp(f"127.0.0.1:{taken.getsockname()[1]}", 1)
        assert raised.value.strerror == "Address already in use"
