"""Plain requests to the API server, for the runner and for tests.

``kubectl`` starts a process of its own for each call, about a tenth of a second of processor time;
waiting for a state in small steps, or making two hundred objects, is better done without it.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
from typing import Any
from urllib.parse import urlsplit

USER_AGENT = "quota-translator-e2e"
JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
TOO_MANY_REQUESTS = 429
BUSY_PAUSES = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 0.0)
APPLY = "application/apply-patch+yaml"


class ApiError(Exception):
    """An answer other than success; ``code`` is 0 when there was no answer at all."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(f"{code} {reason}: {message}" if code else message)
        self.code = code
        self.reason = reason
        self.message = message


class Api:
    """One user of one API server; each request has its own connection, so threads may share it."""

    def __init__(self, url: str, ca: str, certificate: str, key: str) -> None:
        address = urlsplit(url)
        self._host = address.hostname or "127.0.0.1"
        self._port = address.port or 443
        self._tls = ssl.create_default_context(cafile=ca)
        self._tls.load_cert_chain(certificate, key)

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = JSON,
        timeout: float = 30.0,
    ) -> Any:
        """Send a request; the decoded answer, or its text where it is not JSON.

        "Too many requests" is asked again for a while: it is also the answer for a kind whose CRD
        was installed a moment ago.
        """
        headers = {"User-Agent": USER_AGENT, "Accept": JSON}
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = content_type
        for pause in BUSY_PAUSES:
            code, kind, answer = self._exchange(method, path, data, headers, timeout)
            if code != TOO_MANY_REQUESTS:
                break
            time.sleep(pause)
        text = answer.decode(errors="replace")
        decoded = json.loads(text) if kind.startswith(JSON) else text
        if code >= 300:
            raise _error(code, decoded)
        return decoded

    def _exchange(
        self, method: str, path: str, data: bytes | None, headers: dict[str, str], timeout: float
    ) -> tuple[int, str, bytes]:
        connection = http.client.HTTPSConnection(
            self._host, self._port, context=self._tls, timeout=timeout
        )
        try:
            connection.request(method, path, data, headers)
            response = connection.getresponse()
            return response.status, response.getheader("Content-Type") or "", response.read()
        except (OSError, http.client.HTTPException) as error:
            raise ApiError(0, "Unreachable", f"{method} {path}: {error!r}") from error
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        return self.request("GET", path)

    def find(self, path: str) -> Any | None:
        """The object, or None where there is none."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def items(self, path: str) -> list[dict[str, Any]]:
        """A whole list; empty also where the kind does not exist."""
        answer = self.find(path)
        return list(answer["items"]) if answer else []

    def create(self, path: str, body: object) -> Any:
        return self.request("POST", path, body)

    def merge(self, path: str, body: object) -> Any:
        """A JSON merge patch."""
        return self.request("PATCH", path, body, content_type=MERGE_PATCH)

    def delete(self, path: str, **options: object) -> None:
        """Delete one object or, for the path of a list, all of them; absent is fine."""
        try:
            self.request("DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", **options})
        except ApiError as error:
            if error.code != 404:
                raise


def _error(code: int, decoded: Any) -> ApiError:
    if isinstance(decoded, dict):
        return ApiError(code, str(decoded.get("reason", "")), str(decoded.get("message", decoded)))
    return ApiError(code, "", str(decoded).strip())
