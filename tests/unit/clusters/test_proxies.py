"""Which proxy requests to an API server go through: that of the kubeconfig, of the environment, or none."""

import pytest
from kubernetes.aio.client import Configuration

from reconciler.clusters.credentials import proxy_of

FROM_ENVIRONMENT = "http://proxy.example:3128"


@pytest.mark.parametrize(
    ("host", "configured", "no_proxy", "expected"),
    [
        pytest.param("https://api.example:6443", None, "", FROM_ENVIRONMENT, id="the environment's"),
        pytest.param("https://api.example:6443", "http://own:1", "", "http://own:1", id="the kubeconfig's comes first"),
        pytest.param("https://api.example:6443", None, "api.example", None, id="left out by NO_PROXY"),
        pytest.param("https://127.0.0.1:6443", None, "", None, id="this machine"),
        pytest.param("https://localhost:6443", None, "", None, id="this machine by name"),
        pytest.param("http://api.example", None, "", None, id="another scheme"),
    ],
)
def test_the_proxy_is_that_of_the_kubeconfig_or_the_environment(
    host: str, configured: str | None, no_proxy: str, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("https_proxy", FROM_ENVIRONMENT)
    monkeypatch.setenv("no_proxy", no_proxy)
    configuration = Configuration(host=host)
    configuration.proxy = configured
    assert proxy_of(configuration) == expected
