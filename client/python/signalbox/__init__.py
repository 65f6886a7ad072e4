"""Locks of signalbox over HTTP, for programs whose calls may cost a hop. One file, no dependency.

    sb = signalbox.connect("http://127.0.0.1:7074")  # one for the process, used by any thread
    with sb.lock("backup", ttl=30, wait=60) as lease:
        while lease.held:
            step(token=lease.token)

Check `lease.held` before each step, or wait for `lease.lost`, a threading.Event, and send `lease.token` with each write to what
the lock protects. Times are in seconds. Each lease has a session of its own, so two threads that lock one name exclude each
other. signalbox.aio is the same for asyncio; server/httpapi/README.md has the rules of both. A program that ends gives back what
it holds. One that ends by os._exit, or by a signal that it does not handle, holds it for its ttl and a second; one line makes
SIGTERM an end like others: signal.signal(signal.SIGTERM, lambda *_: sys.exit(143)).
"""
from __future__ import annotations

import atexit, base64, http.client, json, math, os, random, re, selectors, ssl, sys, threading, time, urllib.parse, uuid, weakref
from contextlib import suppress
from typing import Any, Callable, Dict, Generator, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple, TypeVar, Union
T = TypeVar("T")
Name = Union[str, bytes]
Query = Sequence[Tuple[str, Name]]
Cancel = Optional[threading.Event]
# Steps of a call: requests to send once (gateway, method, target, headers, body, seconds, again), and pauses, for threads and asyncio.
Steps = Generator[Union[Tuple[int, str, str, Dict[str, str], bytes, float, bool], float], Any, T]
_JSON, _PROBLEM, _BYTES = "application/json", "application/problem+json", "application/octet-stream"
_MAX_BODY, _POLL, _BUSY = 32 << 20, 15.0, 32  # a request waits for less than the timeouts of proxies
# _now is a clock that goes on while the machine sleeps, as time.monotonic does on Windows alone.
_number: Any = getattr(time, "CLOCK_MONOTONIC_RAW" if sys.platform == "darwin" else "CLOCK_BOOTTIME", None)
_now: Callable[[], float] = time.monotonic if _number is None else lambda: time.clock_gettime(_number)
class Error(Exception):
    """The gateway's error: its sentence, `code`, `status`, the whole `document`, and of it `loss`: why something was lost."""
    code, status, sent = "", 0, True  # sent: a request has had no answer, and may take effect
    document, loss = {}, {}  # type: Dict[str, Any], Dict[str, Any]
class NotAcquired(Error):
    """Somebody else holds it."""
    holders: List[Dict[str, Any]] = []
class Cancelled(Error): """The call was given up, by `cancel` or as the connection was closed."""
class Unavailable(Error):
    """No gateway answered in time. A change may have taken effect; it is safe to repeat."""
    retry_after = 0.0
class NotAcquiredInTime(NotAcquired, TimeoutError): """Others held it for the whole wait."""
class Aborted(Error): """A newer request about the name took the place of this one."""
class SessionExpired(Error): """The session has ended, with what it held."""
class LeaseLost(Error): """The session does not hold the name any more."""
class VersionMismatch(Error): """The configuration has another version."""
class BadRequest(Error, ValueError): """The gateway does not take a parameter."""
class NotFound(Error, LookupError): """There is no such configuration, limit or node."""
class Unauthenticated(Error): """The token is missing or wrong."""
class Forbidden(Error): """The token does not have the right."""
class Limited(Error): """The rate limit has no units now."""
class Overloaded(Error): """A quota or bound of the caller is reached."""
# A code is the name of its class: lease_lost is LeaseLost.
_BY_CODE = {**{re.sub("(?<=[a-z])[A-Z]", r"_\g<0>", c.__name__).lower(): c for c in Error.__subclasses__()}, "browser": Forbidden}
class Value(NamedTuple):
    """The value of a configuration, and its version."""
    data: bytes
    version: int
# An answer. `sent` is a time before its request was sent; the tag has no W/, which a proxy that compresses adds.
_Answer = NamedTuple("_Answer", [("status", int), ("headers", Dict[str, str]), ("body", bytes), ("sent", float), ("etag", str),
                                 ("document", Dict[str, Any])])
Fits = Callable[[_Answer], bool]
def _error(code: str, text: str, status: int, document: Dict[str, Any], kind: Any = None, cause: Optional[Exception] = None) -> Error:
    e: Error = (kind or _BY_CODE.get(code, Error))(text)
    e.code, e.status, e.document, e.sent, e.__cause__, e.loss = code, status, document, not code, cause, document.get("loss") or {}
    if isinstance(e, NotAcquired): e.holders = [x for x in document.get("holders") or [] if isinstance(x, dict)]
    return e
def _whole(d: Dict[str, Any], key: str, least: int = 0, most: float = 2**53) -> bool: return type(d.get(key)) is int and least <= d[key] <= most
def _judge(a: _Answer, takes: Sequence[int], kind: str, fits: Fits, where: str) -> _Answer:
    """Returns a gateway's whole answer, or raises its error. Anything else, such as a login page, is Unavailable: the next one is asked."""
    media, d = a.headers.get("content-type", "").partition(";")[0].strip().lower(), None  # type: str, Any
    with suppress(ValueError, RecursionError): d = json.loads(a.body) if media in (_JSON, _PROBLEM) else None
    d = d if isinstance(d, dict) else {}
    a = a._replace(document=d, etag=re.sub("^W/", "", a.headers.get("etag", "")))
    if a.status in takes and (a.status == 304 or media == kind and fits(a)): return a
    code, text = d.get("code"), d.get("detail")
    if media != _PROBLEM or not d.get("status") == a.status >= 400 or not isinstance(code, str) or not isinstance(text, str):
        code, text = "", "%s answered %d %s, which is not of signalbox; is a proxy or a login page in between?" % (where, a.status, media)
    if code and a.status < 500: raise _error(code, text, a.status, d)
    e: Any = _error(code, text, a.status, d, Unavailable)
    after = re.fullmatch("[0-9]{1,4}", a.headers.get("retry-after", ""))
    e.sent, e.retry_after = not code or a.status != 503, float(after[0]) if after else 0.0
    raise e
def _raw(name: Name) -> bytes: return name.encode("utf-8", "surrogateescape") if isinstance(name, str) else name
def _ms(seconds: float) -> str: return "%dms" % max(1, round(seconds * 1000))
def _path(kind: str, name: Name) -> str:
    """Returns the path of a name, which is in the query if a proxy or a gateway could read the path otherwise."""
    text = (raw := _raw(name)).decode("utf-8", "replace")
    if not raw: raise ValueError("the name is empty; give one")
    if {"", ".", ".."}.isdisjoint(text.split("/")) and set("\\%;\ufffd").isdisjoint(text) and text.isprintable():
        return "/v1/%s/%s" % (kind, urllib.parse.quote(raw))
    return "/v1/%s/?name64=%s" % (kind, base64.urlsafe_b64encode(raw).decode())

class _Lease:
    """A lease. Invariant: what may be held, and is not believed or not wanted, is owed, until it is given back or the ttl is over."""
    lost, preempted, _gone = None, None, None  # type: Any, Any, Any  # events
    token, count, slots = 0, 0, []  # type: int, Union[int, str], List[str]
    cause: Optional[BaseException] = None
    _state, _until, _due, _pause = "new", 0.0, math.inf, 0.05  # new, held, lost or released; belief; next request
    _asked, _known, _failure = False, False, None  # type: bool, bool, Optional[Exception]  # known: a gateway has told of the session
    _renewed, _began, _ran = 0.0, 0.0, -math.inf  # the request that renewed it, the next one, and when a failure came in time
    def __init__(self, core: Any, name: Name, query: Query, ttl: float, wait: float, holder: str, hold: float, data: bytes) -> None:
        if not (1 <= ttl <= 1500 and ttl == round(ttl) and wait >= 0):
            raise ValueError("ttl is %r and wait %r; ttl is whole seconds from 1 to 1500, wait 0 or more" % (ttl, wait))
        self.name, self.ttl, self._core, self._wait, self._data = name, int(ttl), core, wait, data
        self._path, self._session = _path("locks", name), core._given or str(uuid.uuid4())
        self._query = [*query, ("ttl", "%ds" % ttl), *([("holder", holder)] if holder else []), *([("hold", _ms(hold))] if hold else [])]
    @property
    def held(self) -> bool:
        """Whether it may be relied on now. It looks at the clock."""
        if self._state == "held" and _now() >= self._until: self._end("lost", self._late())
        return self._state == "held"
    def _late(self) -> Error:
        e, ran = self._failure, _now() - self._ran < self.ttl / 3 + 0.5  # else it is not known whether the program ran
        status = e.status if ran and isinstance(e, Error) and (e.status or isinstance(e, Unavailable)) else -1
        loss = {"cause": {0: "unreachable", 401: "refused", 403: "refused", 429: "overloaded"}.get(status, "unknown"), "stood_ms": 0,
                "since_ms": int(1000 * (_now() - self._renewed)), "steps": [str(e)] if e else [], "advice": getattr(e, "loss", {}).get("advice", "")}
        return _error("", "%r was not renewed in time; acquire it again" % (self.name,), 0, {"loss": loss}, LeaseLost, e)
    def _end(self, state: str, cause: Optional[BaseException] = None, owed: bool = True) -> None:
        """Ends what is held, or a try to get it, once. What is owed is given back in the background."""
        core = self._core
        with core._lock:
            if self._state in ("lost", "released"): return
            self._state, self.cause, self._failure, self._pause = state, cause, None, 0.05
            core._held.discard(self)
            if state == "lost": self.lost.set()
            if not owed or not self._asked or isinstance(cause, SessionExpired): return self._settle()
            self._due, self._until = _now(), _now() + self.ttl + 1
            core._owed.add(self)
            core._wake()
    def _settle(self) -> None:  # nothing is owed
        self._core._owed.discard(self)
        if _reserved.get((self._core._node, self._core._given)) is self: del _reserved[self._core._node, self._core._given]
        self._gone.set()
    def _fits(self, a: _Answer) -> bool:
        """Reports whether an answer is one about the lease. None says more than the ttl."""
        d, count, waited = a.document, a.document.get("count"), 1000 * (_now() - a.sent + 1)
        if not _whole(d, "expires_in_ms", 0, 1000 * self.ttl) or not _whole(d, "waited_ms", 0, waited): return False
        if d.get("state") != "acquired": return d.get("state") == ("waiting" if a.status == 202 else "alive")
        return a.status == 200 and _whole(d, "token", 1) and isinstance(d.get("slots", []), list) and (
            _whole(d, "count", 1) or isinstance(count, str) and re.fullmatch("max|[0-9]{16,20}", count) is not None)
    def _believe(self, a: _Answer) -> None:
        """Counts what is said from before the request was sent."""
        told = min(a.document["waited_ms"] / 1000, _now() - a.sent) + a.document["expires_in_ms"] / 1000
        with self._core._lock:
            if self._state in ("new", "held"):
                self._until, self._pause, self._failure, self._renewed = max(self._until, a.sent + told), 0.05, None, a.sent
                self._due = a.sent + max(self.ttl / 24, min(self.ttl, told) / 3 * random.uniform(0.9, 1))
        if a.document.get("preempt") is True: self.preempted.set()
    def _acquire(self) -> Steps[None]:
        """Acquires it, or has what came of that given back."""
        core = self._core
        if core._given and _reserved.setdefault((core._node, core._given), self) is not self:
            raise Error("the session that was given serves one lock at a time, and another one is held or under way")
        core._pending.add(self)
        self._asked = True  # what is refused above owes nothing: the session serves the other one
        try: yield from self._wait_for()
        except BaseException as e:
            self._known = self._known or isinstance(e, Error) and not isinstance(e, (Unavailable, Cancelled))
            self._end("released", e, self._known or getattr(e, "sent", True) or getattr(e, "status", 0) > 0)
            raise
        finally: core._pending.discard(self)
    def _wait_for(self) -> Steps[None]:
        """No request waits for more than a third of the ttl: if its gateway dies, the place in the queue is kept."""
        core, wait, third = self._core, self._wait, max(0.5, self.ttl / 3)
        slack, poll = min(core._timeout / 3, third), min(_POLL, third) if wait else 0
        end, until, asked = _now() + wait, _now() + max(wait, core._timeout - slack), -math.inf
        while True:
            if _now() - asked < 1: yield min(0.5, self.ttl / 8) * random.uniform(0.5, 1)
            asked = _now()
            try:
                a = yield from core._ask("POST", self._path, self._query, body=self._data, of=self, takes=(200, 202), fits=self._fits,
                                         until=until, slack=slack, end=end, poll=poll, cap=self.ttl / 4)
            except (SessionExpired, LeaseLost, Aborted) as e:
                # Only this call knows a session of its own: it is a late duplicate of the request, or a long outage.
                if core._given or _now() >= until: raise
                if isinstance(e, SessionExpired): self._session, self._known = str(uuid.uuid4()), False
                continue
            self._known = True
            if a.status == 202 and _now() >= end:
                raise _error("not_acquired", "%r is held by others, after %gs" % (self.name, wait), 409, a.document, NotAcquiredInTime)
            if a.status == 202: continue
            self.token, self.count, self.slots = (a.document.get(k, []) for k in ("token", "count", "slots"))
            self._believe(a)
            with core._lock:
                if core._closed: raise Cancelled("the connection is closed; connect again")
                if _now() < self._until:
                    self._state = "held"
                    core._held.add(self)
                    return core._wake()  # type: ignore[no-any-return]
            if _now() >= until: raise self._late()
    def _attend(self) -> Steps[None]:
        """Sends what is due, a renewal or what gives it back, and sets when the next one is."""
        core, held, slack = self._core, self._state == "held", min(self._core._timeout / 3, max(0.2, self.ttl / 6))
        path, query = ("/v1/session", []) if not core._given else (
            self._path, [("token", str(self.token))] if self.token else [])  # type: str, Query
        try:
            if held:
                return self._believe((yield from core._ask("POST", "/v1/session/keepalive", [("holding", _raw(self.name))], of=self,
                                                           fits=self._fits, until=0, slack=slack)))
            if _now() < self._until:
                yield from core._ask("DELETE", path, query, of=self, until=0, slack=0.9 if core._closed else slack, fits=lambda a: (
                    a.document.get("ended") is True or isinstance(a.document.get("released"), bool)))
            self._failure = None
        except Exception as e:
            gone = isinstance(e, (SessionExpired, LeaseLost))
            if held and (gone or self._state != "held"): return self._end("lost", e)
            self._failure, self._ran = None if gone else e, _now() if _now() - self._began < slack + 0.5 else -math.inf
            # What was said before stands; and while no gateway knows the session, a request may yet arrive and start it.
            if held or gone and not self._known or isinstance(e, Unavailable) or not isinstance(e, Error):
                self._due, self._pause = _now() + self._pause * random.uniform(0.5, 1), min(2 * self._pause, 1, self.ttl / 12)
                return
        self._settle()
    def __reduce__(self) -> Any: raise TypeError("a lease belongs to the process that acquired it; acquire again in the other one")

class _Core:
    """What the connections of threads and of asyncio have in common: gateways, and leases that need attention."""
    _closed, _shut_at = False, 0.0
    _wake: Any  # notes that leases need attention at other times than before; the lock is held
    def __init__(self, addresses: Sequence[str], token: Optional[str], session: Optional[str], node: str, timeout: float, tls: Any) -> None:
        if not addresses: raise ValueError("no address is given; give one such as http://127.0.0.1:7074")
        for a in addresses:
            u = urllib.parse.urlsplit(a)
            if u.scheme not in ("http", "https") or not u.hostname or u.username or u.query or u.fragment or u.port == 0:
                hint = "http://" + a if re.fullmatch(r"[\w.\[\]:-]+", a) else "http://HOST:PORT or https://HOST:PORT"
                raise ValueError("the address %r is not one of a gateway; write %s" % (a, hint))
        for what, text, least, most in ("token", token, 1, 8192), ("session", session, 8, 128):
            if text is not None and not re.fullmatch("[!-~]{%d,%d}" % (least, most), text):
                raise ValueError("the %s is not %d to %d visible ASCII characters" % (what, least, most))
        self._addresses = [urllib.parse.urlsplit(a.rstrip("/")) for a in addresses]
        self._token, self._given, self._node, self._timeout = token, session, node, timeout
        self._tls = (tls or ssl.create_default_context()) if "https" in [a.scheme for a in self._addresses] else None
        self._at = random.randrange(len(addresses))
        self._reset()
        _connections.add(self)
    def __reduce__(self) -> Any: raise TypeError("a connection belongs to its process; connect again in the other one")
    def _reset(self) -> None:
        self._lock: Any = threading.RLock()
        self._pending, self._held, self._owed, self._busy = set(), set(), set(), 0  # type: Set[Any], Set[Any], Set[Any], int
    def _shut(self) -> None:
        """Ends calls under way, and begins to give back what is held."""
        with self._lock:
            self._closed, self._shut_at = True, self._shut_at or _now()
            for x in list(self._held): x._end("released")
    def _take_due(self, most: int) -> Tuple[List[Any], float]:
        """Ends beliefs that are over, takes leases that are due, and says how soon to look again: no timer knows that a machine sleeps."""
        every, now = [*self._held, *self._owed], _now()
        wake = min([now + 1, *(x._until for x in every if x.held)])
        due = sorted((x for x in every if x._due <= now), key=lambda x: float(x._due))
        for x in due[:max(0, most)]: x._due, x._began, self._busy = math.inf, now, self._busy + 1
        return due[:max(0, most)], max(0, min([wake, *(x._due for x in every if x._due > now)]) - _now())
    def _served(self, lease: _Lease) -> None:
        with self._lock:
            lease._due, self._busy = min(lease._due, _now() + lease.ttl / 3), self._busy - 1
            self._wake()
    def _ask(self, method: str, path: str, query: Query = (), *, body: bytes = b"", headers: Dict[str, str] = {}, of: Optional[_Lease] = None,
             takes: Sequence[int] = (200,), kind: str = _JSON, fits: Fits, until: Optional[float] = None, slack: float = 0,
             end: float = math.inf, poll: float = 0, cap: float = 5, again: bool = True) -> Steps[_Answer]:
        """Asks one gateway after the other until one decides, or `until`: each for `slack`, and `poll` up to `end`."""
        slack = slack or self._timeout / 3
        until = _now() + self._timeout - slack if until is None else until
        pause, tries, sent = 0.05, 0, False
        headers = {**headers, "Authorization": "Bearer " + self._token} if self._token else headers
        while True:
            if self._closed and method != "DELETE": raise Cancelled("the connection is closed; connect again")
            at, part = self._at, min(poll, max(end - _now(), 0.001))
            full = [("node", self._node), *query] + ([("wait", _ms(part))] if poll else [])
            target = path + ("&" if "?" in path else "?") + urllib.parse.urlencode(full)
            named = {**headers, "Signalbox-Session": of._session} if of else headers
            try:
                return _judge((yield at, method, target, named, body, part + slack, again), takes, kind, fits, self._addresses[at].geturl())
            except VersionMismatch as e:
                if not sent: raise
                raise Unavailable("an earlier request, which had no answer, may have set it: %s" % e) from e
            except Unavailable as e:
                failure, tries = e, tries + 1
                failure.sent = sent = sent or e.sent
            if self._at == at: self._at = (at + 1) % len(self._addresses)
            delay = pause * random.uniform(0.5, 1.5)
            if tries % len(self._addresses) == 0: pause, delay = min(2 * pause, 1), max(delay, min(failure.retry_after, cap))
            if _now() + delay >= until or sent and not again: raise failure
            yield delay
    def _describe(self, name: Name) -> Steps[Dict[str, Any]]:
        path, fits = _path("locks", name), lambda a: isinstance(a.document.get("exists"), bool)  # type: str, Fits
        with suppress(SessionExpired):  # it has not begun to wait
            for x in [x for x in list(self._pending) if x.name == name]:
                return (yield from self._ask("GET", path, of=x, fits=fits)).document
        return (yield from self._ask("GET", path, fits=fits)).document
    def _set(self, path: str, data: bytes, version: Optional[int]) -> Steps[int]:
        headers = {} if version is None else {"If-Match": '"%d"' % version} if version else {"If-None-Match": "*"}
        fits: Fits = lambda a: _whole(a.document, "version", 1)
        return int((yield from self._ask("PUT", path, body=data, headers=headers, fits=fits)).document["version"])
    def _take(self, path: str, units: int, wait: float, again: bool) -> Steps[bool]:
        end, fits = _now() + wait, lambda a: a.document.get("admitted") is True  # type: float, Fits
        while True:
            try:
                yield from self._ask("POST", path, [("units", str(units))], poll=min(_POLL, wait), end=end, again=again, fits=fits)
                return True
            except Limited as e: pause = max(0.05, e.document.get("retry_after_ms", 0) / 1000)
            if _now() + pause >= end: return False
            yield pause
    def _change(self, path: str, query: Query, kind: str, tag: Optional[str]) -> Steps[Tuple[Optional[_Answer], Optional[str]]]:
        """Waits for an answer with another tag, through outages; None: there is nothing."""
        known = {"If-None-Match": tag} if tag else {}
        try:
            a = yield from self._ask("GET", path, query, headers=known, takes=(200, 304) if known else (200,), kind=kind, fits=_shows,
                                     until=math.inf, poll=_POLL if known else 0)
        except NotFound: return None, ""
        return a, tag if a.status == 304 else a.etag
def _shows(a: _Answer) -> bool:
    """Reports whether an answer is a configuration, or the members of a service."""
    if not a.document: return re.fullmatch('"[0-9]{1,16}"', a.etag) is not None
    return a.etag != "" and isinstance(a.document.get("endpoints"), list) and isinstance(a.document.get("live"), bool)
def _value(a: Optional[_Answer]) -> Any: return a and Value(a.body, int(a.etag.strip('"')))
def _semaphore(count: int, limit: int, key: str, priority: Optional[int], labels: Sequence[str], slots: Sequence[str]) -> Query:
    some = [(k, str(v)) for k, v in (("limit", limit or None), ("key", key or None), ("priority", priority)) if v is not None]
    return [("count", str(count)), *(("label", x) for x in labels), *(("slot", x) for x in slots), *some]

class Lease(_Lease):
    """What `lock` and `semaphore` acquire. `lost` is set, and `cause` says why, before somebody else is granted it."""
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.lost, self.preempted, self._gone = (threading.Event() for _ in "123")  # preempted: a waiter wants it; release it soon
    def release(self) -> None:
        """Releases it, or raises. What no gateway answered is tried again in the background, until the ttl is over."""
        self._end("released")
        if self._state == "released" and (not self._gone.wait(min(self._core._timeout, self.ttl)) or self._failure):
            raise self._failure or Unavailable("%r is not released yet; no gateway has answered" % (self.name,))
    def __enter__(self) -> Lease: return self
    def __exit__(self, kind: object, error: object, trace: object) -> None:
        with suppress(*([Error] if error else [])): self.release()  # what failed before counts more
def _readable(socket: Any, seconds: float) -> bool:
    with selectors.DefaultSelector() as s: return bool(s.register(socket, selectors.EVENT_READ) and s.select(seconds))

class Connection(_Core):
    """Gateways of one cluster. Close it, or use it by `with`."""
    def _reset(self) -> None:
        super()._reset()
        self._changed, self._watches = threading.Condition(self._lock), False
        self._free: Dict[int, List[Any]] = {}  # idle connections of each gateway
    def _run(self, steps: Steps[T], cancel: Cancel = None) -> T:
        """Carries out steps in this thread."""
        try:
            step: Any = next(steps)
            while True:
                try: a = self._once(cancel, *step) if isinstance(step, tuple) else self._sleep(cancel, step)
                except BaseException as e: step = steps.throw(e)
                else: step = steps.send(a)
        except StopIteration as e: return e.value  # type: ignore[no-any-return]
    def _sleep(self, cancel: Cancel, seconds: float) -> Any:
        end = time.monotonic() + seconds
        while True:
            if self._closed or cancel is not None and cancel.is_set(): raise Cancelled("the call was given up")
            if time.monotonic() >= end: return
            time.sleep(min(0.2, max(0, end - time.monotonic())))
    def _once(self, cancel: Cancel, at: int, method: str, target: str, headers: Dict[str, str], body: bytes, limit: float,
              again: bool) -> _Answer:
        """Sends a request once. One that is not sent again takes a new connection, as an old one may just be closed."""
        a, free, end, sent = self._addresses[at], self._free.setdefault(at, []), time.monotonic() + limit, 0.0
        c: Any = free.pop() if free and again else None
        try:
            if c is None or _readable(c.sock, 0):
                new: Any = http.client.HTTPConnection if a.scheme == "http" else http.client.HTTPSConnection
                c = new(a.netloc, timeout=limit, **({} if a.scheme == "http" else {"context": self._tls}))
                c.connect()
            c.sock.settimeout(limit)
            sent = _now()
            c.request(method, a.path + target, body or None, headers)
            while not _readable(c.sock, 0.2):
                if method != "DELETE": self._sleep(cancel, 0)
                if time.monotonic() > end: raise TimeoutError("nothing came within %gs" % limit)
            r = c.getresponse()
            n, data = r.length, r.read(_MAX_BODY + 1)
            if len(data) > _MAX_BODY or (len(data) != n if n is not None else not r.chunked): raise ValueError("the answer is incomplete, or too long")
        except BaseException as e:
            if c is not None: c.close()
            if isinstance(e, Error) or not isinstance(e, Exception): raise
            failure = Unavailable("%s does not answer: %s" % (a.geturl(), str(e) or type(e).__name__))
            failure.sent = sent > 0
            raise failure from e
        c.close() if r.will_close else free.append(c)
        return _Answer(r.status, {k.lower(): v for k, v in r.getheaders()}, data, sent, "", {})
    def _wake(self) -> None:
        self._changed.notify_all()
        if not self._watches and (self._held or self._owed):
            threading.Thread(target=self._watch, name="signalbox", daemon=True).start()
            self._watches = True
    def _watch(self) -> None:
        """Ends beliefs in time, and has other threads send what is due, so that no request can hold it up."""
        with self._lock:
            while self._held or self._owed:
                due, wake = self._take_due(_BUSY - self._busy)
                for x in due:
                    try: threading.Thread(target=self._serve, args=(x,), name="signalbox", daemon=True).start()
                    except RuntimeError: x._due, self._busy = _now() + 0.05, self._busy - 1  # the program ends; close serves it
                self._changed.wait(wake)
            self._watches = False
    def _serve(self, lease: _Lease) -> None:
        try: self._run(lease._attend())
        finally: self._served(lease)
    def lock(self, name: Name, *, ttl: float = 30, wait: float = 0, shared: bool = False, holder: str = "", hold: float = 0, data: bytes = b"",
             cancel: Cancel = None) -> Lease:
        """Acquires a lock. Raises NotAcquired after `wait` seconds, and Cancelled soon after `cancel` is set."""
        return self._acquire(Lease(self, name, [("mode", "shared" if shared else "exclusive")], ttl, wait, holder, hold, data), cancel)
    def semaphore(self, name: Name, *, count: int = 1, limit: int = 0, ttl: float = 30, wait: float = 0, key: str = "",
                  priority: Optional[int] = None, labels: Sequence[str] = (), slots: Sequence[str] = (), holder: str = "", hold: float = 0,
                  data: bytes = b"", cancel: Cancel = None) -> Lease:
        """Acquires units of a semaphore, which is made with `limit` if there is none."""
        query = _semaphore(count, limit, key, priority, labels, slots)
        return self._acquire(Lease(self, name, query, ttl, wait, holder, hold, data), cancel)
    def _acquire(self, lease: Lease, cancel: Cancel) -> Lease:
        self._sleep(cancel, 0)
        try: self._run(lease._acquire(), cancel)
        except BaseException: lease._end("released"); raise
        return lease
    def describe(self, name: Name) -> Dict[str, Any]:
        """Who holds a lock, and who waits for it."""
        return self._run(self._describe(name))
    def why(self, name: Name) -> List[str]:
        """Why this connection waits for a name, in sentences; empty: it does not."""
        return list(self.describe(name).get("why", []))
    def config(self, name: Name) -> Config: return Config(self, "config", name)
    def service(self, name: Name, zone: str = "") -> Service: return Service(self, "services", name, zone)
    def limit(self, name: Name) -> Limit: return Limit(self, "limits", name)
    def close(self) -> None:
        """Gives back all that it holds. Raises when no gateway answers; what is left is free after its ttl."""
        self._shut()
        left, since = -1, self._shut_at
        while self._pending or self._owed:
            if left != len(self._pending) + len(self._owed):
                left, since = len(self._pending) + len(self._owed), since if left < 0 else _now()
            elif _now() - since > 0.9:
                raise Unavailable("%d locks are not given back, as no gateway answers; they are free after their ttl" % left)
            with self._lock: due, wake = self._take_due(1)
            for x in due: self._serve(x)
            time.sleep(min(0.01, wake))
        for c in sum(self._free.values(), []): c.close()
    def __enter__(self) -> Connection: return self
    def __exit__(self, kind: object, error: object, trace: object) -> None:
        with suppress(*([Error] if error else [])): self.close()

class _Named:
    def __init__(self, connection: Connection, kind: str, name: Name, zone: str = "") -> None:
        self._core, self._path = connection, _path(kind, name)
        self._query: Query = [("zone", zone)] if zone else []
    def _read(self, kind: str) -> _Answer: return self._core._run(self._core._ask("GET", self._path, self._query, kind=kind, fits=_shows))
    def _changes(self, kind: str, cancel: Cancel) -> Iterator[Optional[_Answer]]:
        """Yields each other answer. A request that did not wait is followed by the next one a second later."""
        tag: Optional[str] = None
        while True:
            asked, former = _now(), tag
            a, tag = self._core._run(self._core._change(self._path, self._query, kind, tag), cancel)
            if tag != former: yield a
            if former or a is None: self._core._sleep(cancel, asked + 1 - _now())
class Config(_Named):
    """A configuration: bytes with a version."""
    def get(self) -> Value:
        """Raises NotFound if it is not set."""
        return _value(self._read(_BYTES))  # type: ignore[no-any-return]
    def set(self, data: bytes, version: Optional[int] = None) -> int:
        """Sets it, if it has this version (0: there is none yet). Raises VersionMismatch."""
        return self._core._run(self._core._set(self._path, data, version))
    def watch(self, cancel: Cancel = None) -> Iterator[Optional[Value]]:
        """Yields the value and each other one; None: it is not set. Raises Cancelled soon after `cancel` is set."""
        return map(_value, self._changes(_BYTES, cancel))
class Service(_Named):
    """The members of a service."""
    def members(self) -> Dict[str, Any]:
        """`endpoints`, of which those that are `used` are to be called, and `live`."""
        return self._read(_JSON).document
    def watch(self, cancel: Cancel = None) -> Iterator[Dict[str, Any]]:
        """Yields the members and each change. Raises Cancelled soon after `cancel` is set."""
        return (a.document for a in self._changes(_JSON, cancel) if a is not None)
class Limit(_Named):
    """A rate limit."""
    def take(self, units: int = 1, wait: float = 0, retry: bool = False) -> bool:
        """Takes units within `wait` seconds; False: there are none. With `retry` a take without an answer is sent again, and may count twice."""
        return self._core._run(self._core._take(self._path, units, wait, retry))
_connections: weakref.WeakSet[Any] = weakref.WeakSet()
_reserved: Dict[Any, _Lease] = {}  # by the session that was given
@atexit.register
def _at_exit() -> None:
    ours = [c for c in list(_connections) if not c._given]  # what has a session that was given outlives the program
    for end in [*(c._shut for c in ours), *(getattr(c, "_exit", c.close) for c in ours)]:
        with suppress(Exception): end()
def _after_fork() -> None:
    """The child holds nothing: what its parent holds is its parent's."""
    _reserved.clear()
    for c in list(_connections):
        for x in c._held | c._pending:
            x._state, x.lost = "lost", type(x.lost)()
            x.cause = LeaseLost("the process was forked, and its parent holds the lock; acquire again in the child")
            x.lost.set()
        c._given = None
        c._reset()
if hasattr(os, "register_at_fork"): os.register_at_fork(after_in_child=_after_fork)
def connect(*addresses: str, token: Optional[str] = None, session: Optional[str] = None, node: str = "/default",
            timeout: float = 10, context: Optional[ssl.SSLContext] = None) -> Connection:
    """Connects, by the first request. `token` is the credential; `session` is a name, hard to guess, for one lease at a time, which
    is to outlive the program; `timeout` bounds a request beside its wait."""
    return Connection(addresses, token, session, node, timeout, context)
