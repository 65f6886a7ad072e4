"""Locks of signalbox over HTTP, for programs whose calls may cost a hop. One file, no dependency.

    with signalbox.connect("http://127.0.0.1:7074").lock("backup", ttl=30, wait=60) as lease:
        while lease.held:
            step(token=lease.token)

Check `lease.held` before each step, or wait for `lease.lost`, a threading.Event, and send `lease.token`
with each write to what the lock protects. Times are in seconds. A connection has one session, from the
first lock to the last. Its methods may be called from any thread; with asyncio by asyncio.to_thread.
server/httpapi/README.md has the rules that this file keeps.
"""

from __future__ import annotations

import atexit
import http.client
import json
import os
import random
import ssl
import threading
import time
import urllib.parse
import uuid
import weakref
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Type, Union

Query = List[Tuple[str, str]]

def _now() -> float:
    """A clock that goes on while the machine sleeps, where the platform has one."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)

class Error(Exception):
    """The gateway's error: its sentence, `code`, `status` and the whole `document`."""
    code, status = "", 0
    document: Dict[str, Any] = {}

class NotAcquired(Error):
    """Somebody else holds it: `holders`."""
    @property
    def holders(self) -> List[Dict[str, Any]]:
        return list(self.document.get("holders", []))

class Aborted(Error):
    """A newer request about the name took the place of this one."""
class SessionExpired(Error):
    """The session has ended, with what it held."""
class LeaseLost(Error):
    """The session does not hold the name any more."""
class VersionMismatch(Error):
    """The configuration has another version."""
class NotFound(Error):
    """There is no such configuration, limit or node."""
class Unauthenticated(Error):
    """The token is missing or wrong."""
class Forbidden(Error):
    """The token does not have the right."""
class Limited(Error):
    """The rate limit has no units now."""
class Unavailable(Error):
    """No gateway answered in time. A change may have taken effect; it is safe to repeat."""

_BY_CODE: Dict[str, Type[Error]] = {
    "not_acquired": NotAcquired, "aborted": Aborted, "session_expired": SessionExpired, "lease_lost": LeaseLost,
    "version_mismatch": VersionMismatch, "not_found": NotFound, "unauthenticated": Unauthenticated,
    "forbidden": Forbidden, "browser": Forbidden, "limited": Limited, "unavailable": Unavailable,
    "closing": Unavailable, "session_moved": Unavailable, "outcome_unknown": Unavailable}

def _error(status: int, body: bytes) -> Error:
    document = json.loads(body) if body[:1] == b"{" else {}
    code = str(document.get("code", ""))
    e = _BY_CODE.get(code, Error)(document.get("detail", "the gateway answered %d" % status))
    e.code, e.status, e.document = code, status, document
    return e

def _duration(seconds: float) -> str:
    return "%dms" % max(0, round(seconds * 1000))

def _path(name: str, kind: str = "locks") -> str:
    return "/v1/%s/%s" % (kind, urllib.parse.quote(name, safe=""))

class _Answer(NamedTuple):
    status: int
    etag: str
    body: bytes
    sent: float

    def json(self) -> Dict[str, Any]:
        return dict(json.loads(self.body)) if self.body else {}

    def until(self, document: Dict[str, Any]) -> float:
        """When belief ends: counted from before the request was sent."""
        return self.sent + (int(document["waited_ms"]) + int(document["expires_in_ms"])) / 1000

class Value(NamedTuple):
    """The value of a configuration, and its version."""
    data: bytes
    version: int

class Lease:
    """Units that are held. `lost` is set, and `cause` says why, before anybody else is granted them."""
    def __init__(self, connection: "Connection", name: str, document: Dict[str, Any], until: float) -> None:
        self.name, self.token = name, int(document["token"])
        self.count: Union[int, str] = document["count"]
        self.slots: List[str] = list(document.get("slots", []))
        self.lost, self.preempted = threading.Event(), threading.Event()  # preempted: a waiter wants it; release it soon
        self.cause: Optional[BaseException] = None
        self._connection, self._until, self._released = connection, until, False
        if document.get("preempt"):
            self.preempted.set()

    @property
    def held(self) -> bool:
        """Whether it may be relied on now. It looks at the clock."""
        if _now() >= self._until:
            self._lose(LeaseLost("it was not renewed in time"))
        return not self._released and not self.lost.is_set()

    def _lose(self, cause: BaseException) -> None:
        if not self._released and not self.lost.is_set():
            self.cause = cause
            self.lost.set()

    def release(self) -> None:
        """Releases it. If no gateway answers, it goes on trying in the background."""
        with self._connection._lock:
            self._released = True
            known = self._connection._leases.get(self.name) is self
            if known:
                del self._connection._leases[self.name]
        if known:
            self._connection._give_back(self.name)

    def __enter__(self) -> "Lease":
        return self

    def __exit__(self, *why: object) -> None:
        self.release()

    def __reduce__(self) -> Any:
        raise TypeError("a lease belongs to the process that acquired it; acquire again in the other one")

class Connection:
    """A session at any of several gateways. Close it, or use it by `with`."""
    def __init__(self, addresses: Sequence[str], token: Optional[str], session: Optional[str], node: str,
                 timeout: float, context: Optional[ssl.SSLContext]) -> None:
        if not addresses:
            raise ValueError("no address is given; give one such as http://127.0.0.1:7074")
        self._addresses = [urllib.parse.urlsplit(a.rstrip("/")) for a in addresses]
        for a in self._addresses:
            if a.scheme not in ("http", "https") or not a.netloc:
                raise ValueError("the address %r is not http://HOST:PORT or https://HOST:PORT" % a.geturl())
        self._token, self._node, self._timeout, self._context = token, node, timeout, context
        self._given = session
        self._lock = threading.RLock()
        self._reset()
        _connections.add(self)

    def _reset(self) -> None:
        self._session = self._given or str(uuid.uuid4())
        self._leases: Dict[str, Lease] = {}
        self._releases: List[str] = []  # names whose release is to be tried again
        self._ttl, self._waiting = 0.0, 0  # of the session, 0: there is none; acquires under way
        self._kept, self._wake, self._closed = threading.local(), threading.Event(), False
        self._keeper: Optional[threading.Thread] = None
        self._at = random.randrange(len(self._addresses))

    def __reduce__(self) -> Any:
        raise TypeError("a connection belongs to its process; connect again in the other one")

    def _once(self, at: int, method: str, target: str, headers: Dict[str, str], body: bytes, timeout: float) -> _Answer:
        address, kept = self._addresses[at], self._kept.__dict__  # a connection to each gateway, of this thread
        if at not in kept:
            kept[at] = http.client.HTTPSConnection(address.netloc, context=self._context) if address.scheme == "https" \
                else http.client.HTTPConnection(address.netloc)
        c: http.client.HTTPConnection = kept[at]
        c.timeout = timeout
        if c.sock is not None:
            c.sock.settimeout(timeout)
        sent = _now()
        try:
            c.request(method, address.path + target, body=body or None, headers=headers)
            r = c.getresponse()
            return _Answer(r.status, r.headers.get("ETag", ""), r.read(), sent)
        except BaseException:
            c.close()
            raise

    def _ask(self, method: str, path: str, query: Query = [], body: bytes = b"", headers: Dict[str, str] = {},
             session: Optional[str] = None, wait: float = 0, timeout: Optional[float] = None,
             attempt: Optional[float] = None) -> _Answer:
        """Sends a request until it is decided, to one gateway after the other."""
        headers = dict(headers)
        if self._token:
            headers["Authorization"] = "Bearer " + self._token
        if session:
            headers["Signalbox-Session"] = session
        target = path + "?" + urllib.parse.urlencode([("node", self._node)] + query)
        deadline = _now() + wait + (self._timeout if timeout is None else timeout)
        pause, failure = 0.02, Unavailable("no gateway answered in time")
        while True:
            at = self._at
            limit = max(0.05, min(deadline - _now(), wait + (attempt or self._timeout / 3)))
            try:
                answer = self._once(at, method, target, headers, body, limit)
                if answer.status not in (503, 504):
                    if answer.status >= 400:
                        raise _error(answer.status, answer.body)
                    return answer
                failure = _error(answer.status, answer.body)  # type: ignore[assignment]
            except (OSError, http.client.HTTPException) as e:
                failure = Unavailable("%s does not answer: %s" % (self._addresses[at].geturl(), e or type(e).__name__))
            if self._at == at:
                self._at = (at + 1) % len(self._addresses)
            delay = pause * (0.5 + random.random())
            if _now() + delay >= deadline:
                raise failure
            time.sleep(delay)
            pause = min(2 * pause, 1.0)

    def lock(self, name: str, *, ttl: float = 30, wait: float = 0, shared: bool = False, holder: str = "",
             hold: float = 0, data: bytes = b"") -> Lease:
        """Acquires a lock. Raises NotAcquired after `wait` seconds."""
        return self._acquire(name, [("mode", "shared" if shared else "exclusive")], ttl, wait, holder, hold, data)

    def semaphore(self, name: str, *, count: int = 1, limit: int = 0, ttl: float = 30, wait: float = 0, key: str = "",
                  priority: Optional[int] = None, labels: Sequence[str] = (), slots: Sequence[str] = (), holder: str = "",
                  hold: float = 0, data: bytes = b"") -> Lease:
        """Acquires units of a semaphore, which is made with `limit` if there is none."""
        query = [("count", str(count))] + [("label", x) for x in labels] + [("slot", x) for x in slots]
        given = (("limit", str(limit or "")), ("key", key), ("priority", "" if priority is None else str(priority)))
        query += [(k, v) for k, v in given if v]
        return self._acquire(name, query, ttl, wait, holder, hold, data)

    def _acquire(self, name: str, query: Query, ttl: float, wait: float, holder: str, hold: float, data: bytes) -> Lease:
        ttl, end = max(1, round(ttl)), _now() + wait
        query = query + [("ttl", "%ds" % ttl)] + ([("holder", holder)] if holder else [])
        query += [("hold", _duration(hold))] if hold else []
        with self._lock:
            self._check_open()
            if name in self._leases:
                raise Error("this connection holds %s already; release it first, or connect again" % name)
            self._waiting += 1
        lease = None
        try:
            while lease is None:
                lease = self._try_acquire(name, query, ttl, wait, end, data)
            return lease
        finally:
            with self._lock:
                self._waiting -= 1
            if lease is None:
                self._give_back(name)

    def _try_acquire(self, name: str, query: Query, ttl: float, wait: float, end: float, data: bytes) -> Optional[Lease]:
        with self._lock:
            session, self._ttl = self._session, self._ttl or ttl
        part = max(0.0, min(end - _now(), 10.0))
        if wait > 0:
            query = query + [("wait", _duration(part))]
        try:
            answer = self._ask("POST", _path(name), query, data, session=session, wait=part)
        except SessionExpired as e:
            self._expire(session, e)
            if self._given:
                raise
            return None
        document = answer.json()
        if answer.status == 200:
            with self._lock:
                self._check_open()
                lease = Lease(self, name, document, answer.until(document))
                if session != self._session or not lease.held:
                    return None  # it ended meanwhile
                self._leases[name] = lease
                if self._keeper is None:
                    self._keeper = threading.Thread(target=self._keep, name="signalbox", daemon=True)
                    self._keeper.start()
                self._wake.set()
                return lease
        if _now() >= end:
            e = NotAcquired("%s is held by others, after %gs" % (name, wait))
            e.code, e.status, e.document = "not_acquired", 409, document
            raise e
        return None

    def _give_back(self, name: str) -> None:
        """Releases a name or leaves its queue, with the session if that has nothing else."""
        with self._lock:
            last = not self._leases and not self._waiting and not self._given
            if not last:
                self._releases.append(name)
        self._end() if last else self._try_releases()

    def _try_releases(self) -> None:
        with self._lock:
            session, names = self._session, [n for n in self._releases if n not in self._leases]
        for name in names:
            try:
                self._ask("DELETE", _path(name), session=session)
            except Unavailable:
                return
            except Error:
                pass
            with self._lock:
                if session == self._session and name in self._releases:
                    self._releases.remove(name)

    def _end(self) -> None:
        """Ends the session, so that its name is used up: the next one has another."""
        with self._lock:
            session, began = self._session, self._ttl > 0
            self._ttl, self._releases = 0.0, []
            self._session = self._given or str(uuid.uuid4())
        if began:
            try:
                self._ask("DELETE", "/v1/session", session=session)
            except Error:
                pass  # it ends by itself, after its ttl

    def _expire(self, session: str, cause: Error) -> None:
        with self._lock:
            if session == self._session:
                for lease in self._leases.values():
                    lease._lose(cause)
                self._leases, self._releases, self._ttl = {}, [], 0.0
                self._session = self._given or str(uuid.uuid4())

    def _keep(self) -> None:
        """Renews each lease, each third of the ttl, and sets `lost` when belief ends."""
        due: Dict[str, float] = {}
        while True:
            with self._lock:
                if self._closed:
                    return
                leases, session, third = list(self._leases.values()), self._session, max(self._ttl, 1) / 3
            now = _now()
            due = {x.name: due.get(x.name, now + third) for x in leases if x.held}
            with self._lock:
                for lease in leases:
                    if lease.name not in due and self._leases.get(lease.name) is lease:
                        del self._leases[lease.name]
                        self._releases.append(lease.name)
            for lease in leases:
                if now >= due.get(lease.name, now + 1):
                    due[lease.name] = now + (third if self._renew(lease, session, third) else third / 4)
            if self._releases:
                self._try_releases()
            times = list(due.values()) + [x._until for x in leases if x.name in due]
            self._wake.wait(max(0.005, min(times) - _now()) if times else None)
            self._wake.clear()

    def _renew(self, lease: Lease, session: str, third: float) -> bool:
        timeout = max(0.2, min(third, lease._until - _now()))
        try:
            answer = self._ask("POST", "/v1/session/keepalive", [("holding", lease.name)], session=session, timeout=timeout,
                               attempt=max(0.2, third / 2))
        except LeaseLost as e:
            lease._lose(e)
        except SessionExpired as e:
            self._expire(session, e)
        except Error:
            return False  # what was said before stands
        else:
            lease._until = max(lease._until, answer.until(answer.json()))
            if answer.json().get("preempt"):
                lease.preempted.set()
        return True

    def describe(self, name: str) -> Dict[str, Any]:
        """Who holds a lock, and who waits for it."""
        with self._lock:
            session = self._session if self._ttl else None
        try:
            return self._ask("GET", _path(name), session=session).json()
        except SessionExpired:
            return self._ask("GET", _path(name)).json()

    def why(self, name: str) -> List[str]:
        """Why this connection waits for a name, in sentences; empty: it does not."""
        return list(self.describe(name).get("why", []))

    def config(self, name: str) -> "Config":
        return Config(self, "config", name, [])

    def service(self, name: str, zone: str = "") -> "Service":
        return Service(self, "services", name, [("zone", zone)] if zone else [])

    def limit(self, name: str) -> "Limit":
        return Limit(self, "limits", name, [])

    def _watch(self, path: str, query: Query, poll: float) -> Iterator[Optional[_Answer]]:
        """Yields each change; None: there is nothing."""
        etag: Optional[str] = None
        while True:
            wait, known = (poll, {"If-None-Match": etag}) if etag else (0.0, {})
            try:
                answer: Optional[_Answer] = self._ask(
                    "GET", path, query + ([("wait", _duration(wait))] if etag else []), headers=known, wait=wait)
            except NotFound:
                answer = None
            now = answer.etag if answer else ""
            if now != etag:
                yield answer
            etag = now
            if answer is None:
                time.sleep(1)

    def _check_open(self) -> None:
        if self._closed:
            raise Error("the connection is closed; connect again")

    def close(self) -> None:
        """Ends the session: nothing is held when it returns, if a gateway answers."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for lease in self._leases.values():
                lease._released = True
            self._leases = {}
            self._wake.set()
            keeper = self._keeper
        if keeper is not None and keeper is not threading.current_thread():
            keeper.join(self._timeout)
        self._end()

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *why: object) -> None:
        self.close()

class _Named:
    def __init__(self, connection: Connection, kind: str, name: str, query: Query) -> None:
        self._connection, self._path, self._query = connection, _path(name, kind), query

class Config(_Named):
    """A configuration: bytes with a version."""
    def get(self) -> Value:
        """Raises NotFound if it is not set."""
        answer = self._connection._ask("GET", self._path)
        return Value(answer.body, int(answer.etag.strip('"')))

    def set(self, data: bytes, version: Optional[int] = None) -> int:
        """Sets it, if it has this version (0: there is none yet). Raises VersionMismatch."""
        headers = {} if version is None else {"If-Match": '"%d"' % version} if version else {"If-None-Match": "*"}
        return int(self._connection._ask("PUT", self._path, body=data, headers=headers).json()["version"])

    def watch(self, poll: float = 60) -> Iterator[Optional[Value]]:
        """Yields the value and each other one; None: it is not set."""
        for answer in self._connection._watch(self._path, [], poll):
            yield answer and Value(answer.body, int(answer.etag.strip('"')))

class Service(_Named):
    """The members of a service."""
    def members(self) -> Dict[str, Any]:
        """`endpoints`, of which those that are `used` are to be called, and `live`."""
        return self._connection._ask("GET", self._path, self._query).json()

    def watch(self, poll: float = 60) -> Iterator[Dict[str, Any]]:
        """Yields the members and each change."""
        for answer in self._connection._watch(self._path, self._query, poll):
            if answer is not None:
                yield answer.json()

class Limit(_Named):
    """A rate limit."""
    def take(self, units: int = 1, wait: float = 0) -> bool:
        """Takes units within `wait` seconds; False: there are none. A repeat takes units again."""
        query = [("units", str(units))] + ([("wait", _duration(wait))] if wait else [])
        try:
            self._connection._ask("POST", self._path, query, wait=wait)
        except Limited:
            return False
        return True

_connections: "weakref.WeakSet[Connection]" = weakref.WeakSet()

atexit.register(lambda: [c.close() for c in list(_connections)])

def _after_fork() -> None:
    """The child holds nothing: what its parent holds is its parent's."""
    for c in list(_connections):
        for lease in c._leases.values():
            lease._lose(LeaseLost("the process was forked, and its parent holds the lock; acquire again in the child"))
        c._lock = threading.RLock()
        c._given = None
        c._reset()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

def connect(*addresses: str, token: Optional[str] = None, session: Optional[str] = None, node: str = "/default",
            timeout: float = 10, context: Optional[ssl.SSLContext] = None) -> Connection:
    """Connects, by the first request. `token` is the credential; `session` is a name for the session, made once and
    hard to guess; `timeout` bounds a request beside its wait."""
    return Connection(addresses, token, session, node, timeout, context)
