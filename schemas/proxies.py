"""Which proxies requests can go through. Pure."""

from urllib.parse import urlsplit


def proxy_refusal(proxy: str, where: str) -> str:
    """Return why requests do not go through a proxy, which `where` names; empty: they do, or there is none.

    Neither a watch nor a request for a token can speak SOCKS, and an address without a scheme says nothing.
    """
    scheme = proxy.partition("://")[0].lower() if "://" in proxy else ""
    if not proxy:
        return ""
    if scheme in ("http", "https"):
        return "" if _has_host(proxy) else f"{where} must be {scheme}://HOST[:PORT]"
    named = f"{scheme}://…" if scheme else "an address without a scheme"
    return f"{where}: {named} is not supported: use a proxy of http:// or https://"


def _has_host(proxy: str) -> bool:
    try:
        parts = urlsplit(proxy)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
