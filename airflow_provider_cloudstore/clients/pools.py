"""Opens urllib3's connections: through one proxy or none, and of a class of our own, which watches what is sent."""

from __future__ import annotations

import ssl

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from airflow_provider_cloudstore.protocol.proxies import Proxy


def pool_manager(proxy: Proxy | None, tls: ssl.SSLContext | None, connection: type[HTTPConnection]) -> urllib3.PoolManager:
    """Pools of connections; no URL in them contains the proxy's credentials.

    :param proxy: the proxy, if any.
    :param tls: which certificates are trusted; None if neither the hosts nor the proxy use TLS.
    :param connection: the class of a connection without TLS; the one with TLS is derived from it.
    """
    pools = urllib3.PoolManager(ssl_context=tls)
    if proxy:
        pools = urllib3.ProxyManager(proxy.url, proxy_headers=proxy.headers, ssl_context=tls, proxy_ssl_context=tls)
    over_tls = type("Https", (connection, HTTPSConnection), {})
    pools.pool_classes_by_scheme = {
        "http": type("HttpPool", (HTTPConnectionPool,), {"ConnectionCls": connection}),
        "https": type("HttpsPool", (HTTPSConnectionPool,), {"ConnectionCls": over_tls}),
    }
    return pools
