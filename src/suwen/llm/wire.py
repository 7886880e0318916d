"""The HTTP side of an endpoint: its client, the proxy in between, keeping keys out of texts. Sends nothing itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass

from suwen.llm.config import EndpointConfig, LLMError

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_SHORTEST_SECRET = 6
_HIDDEN = "[key]"
_PASSWORD = re.compile("//[^/:]*:([^/]*)@")


class EndpointProblem(LLMError):
    """An endpoint cannot be used at all, so a run ends: every further call would fail too."""


class Secrets:
    """Takes a key out of texts that a server sends back: errors, replies, whatever is stored or shown."""

    def __init__(self, *secrets: str | None) -> None:
        forms: list[str] = []
        for secret in secrets:
            if secret is None or len(secret) < _SHORTEST_SECRET:
                continue
            forms += [re.escape(secret), re.escape(quote(secret, safe=""))]
            if len(secret) >= 20:
                # Servers show the beginning and stars, or dots, for the rest.
                forms.append(re.escape(secret[:8]) + r"[\w*.…-]*")
        self._pattern = re.compile("|".join(forms)) if forms else None

    def hide(self, text: str) -> str:
        """The text with ``[key]`` in place of the key.

        >>> Secrets("sk-1234567890").hide("Incorrect key sk-1234567890 given")
        'Incorrect key [key] given'
        """
        return self._pattern.sub(_HIDDEN, text) if self._pattern is not None else text


def secrets_of(name: str, config: EndpointConfig) -> Secrets:
    """What must not be shown of an endpoint: its key, and a password in its address or its proxy's."""
    passwords = [match[1] for url in (config.base_url, proxy_of(config) or "") if (match := _PASSWORD.search(url))]
    return Secrets(config.key(name) if config.key_env else None, *passwords)


def shown(url: str) -> str:
    """An address without the name and password it may hold."""
    return re.sub("//[^/]*@", "//", url, count=1)


def proxy_of(config: EndpointConfig) -> str | None:
    """The proxy that calls to an endpoint go through, as the environment says; none to this machine itself."""
    parts = urlsplit(config.base_url)
    host = parts.hostname or ""
    if host in _LOOPBACK or proxy_bypass(host):
        return None
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    return f"http://{proxy}" if proxy and "://" not in proxy else proxy


def make_client(name: str, config: EndpointConfig) -> AsyncOpenAI:
    """The client of an endpoint; a proxy that cannot be used is refused at once."""
    try:
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient
    except ImportError:
        raise LLMError("asking language models needs the openai package: pip install 'suwen[curate]'") from None
    proxy = proxy_of(config)
    try:
        # What is no address would only fail at the first call, in other words each time.
        if proxy is not None and (not urlsplit(proxy).hostname or urlsplit(proxy).port == 0):
            raise ValueError(proxy)
        # The proxy is chosen here: the package's own choice fails on variables that this endpoint does not need.
        http = DefaultAsyncHttpxClient(trust_env=False, proxy=proxy)
    except (ImportError, ValueError, TypeError) as problem:
        socks = "pip install 'httpx[socks]', " if isinstance(problem, ImportError) else ""
        raise EndpointProblem(
            f"the proxy {shown(proxy or '')} for endpoint {name!r} cannot be used ({type(problem).__name__}): {socks}"
            "set HTTPS_PROXY and HTTP_PROXY to an http:// address, or put the endpoint's host into NO_PROXY"
        ) from None
    # The retries are ours: the package's own would not slow the whole endpoint, nor be counted.
    return AsyncOpenAI(
        base_url=config.base_url,
        api_key=config.key(name),
        max_retries=0,
        timeout=config.timeout,
        http_client=http,
    )
