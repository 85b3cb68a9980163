"""The client of one Prometheus-compatible HTTP API: instant queries and names of series, within bounds."""

from typing import Any

from reconciler.clusters.answers import ApiError, UnreadableError
from reconciler.observer.httpclient import HttpClient, first_words
from reconciler.prometheus import promlimits
from reconciler.prometheus.connections import PromConnection
from reconciler.prometheus.promanswers import PromResult, read_names, read_result, stated_error


class PromClient:
    """Asks one Prometheus. Errors are those of a member cluster's client."""

    def __init__(self, connection: PromConnection) -> None:
        self._connection, self._client = connection, HttpClient(connection.http, promlimits.BYTES)

    async def query(self, text: str, namespace: str = "") -> PromResult:
        """The result of an instant query, which counts for the share of a namespace.

        Raises ApiError: it was refused. Raises NoAnswerError: no answer came in time. Raises UnreadableError: the
        answer is not one, or exceeds a bound. Raises ConfigError: a file that it needs cannot be read.
        """
        data = {"query": text, "timeout": f"{self._connection.http.timeout_s:g}s"}
        body = await self._ask("POST", "/api/v1/query", namespace, data=data)
        try:
            result = read_result(body)
        except ValueError as error:
            raise UnreadableError(f"the answer of {self._connection.http.url} cannot be read: {error}") from error
        most = self._connection.max_series
        if len(result.samples) > most:
            raise UnreadableError(f"the query gives {len(result.samples)} series, the limit is {most}")
        return result

    async def names(self, selector: str, since_s: int) -> list[str]:
        """The names of the series that a selector matched since a time (Unix seconds), sorted. Raises: as `query`."""
        params = {"match[]": selector, "start": str(since_s)}
        body = await self._ask("GET", "/api/v1/label/__name__/values", "", params=params)
        try:
            return read_names(body)
        except ValueError as error:
            raise UnreadableError(f"the answer of {self._connection.http.url} cannot be read: {error}") from error

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _ask(self, method: str, path: str, namespace: str, **sent: Any) -> bytes:
        status, body = await self._client.ask(method, f"{self._connection.http.url}{path}", namespace, **sent)
        if not 200 <= status < 300:
            raise ApiError(status, f"{path}: {stated_error(body) or first_words(status, body)}")
        if stated := stated_error(body):
            raise ApiError(422, f"{path}: {stated}")
        return body
