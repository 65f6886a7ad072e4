"""Locks of signalbox over HTTP, for asyncio.

    async with signalbox.aio.connect("http://127.0.0.1:7074") as sb:
        async with sb.lock("backup", ttl=30, wait=60) as lease:
            while lease.held:
                await step(token=lease.token)

All is as in signalbox, but that `lease.lost` is an asyncio.Event, and that a call is given up by cancelling its task.
Nothing here blocks the loop, or uses its executor. A loop that is blocked for longer than the ttl loses its locks;
`lease.held` says so at once when it goes on, and `lost` is set as soon as the loop runs timers again.
"""
from __future__ import annotations

import asyncio
import re
import socket
import ssl
import threading
from typing import Any, AsyncIterator, Dict, Generator, List, Optional, Sequence, Set, Tuple, TypeVar

from . import (_BUSY, _BYTES, _JSON, _MAX_BODY, Cancelled, Error, Name, Query, Steps, Unavailable, Value, _Answer, _Core, _Lease,
               _now, _path, _semaphore, _shows, _value)

T = TypeVar("T")
Streams = Tuple[asyncio.StreamReader, asyncio.StreamWriter]

class Lease(_Lease):
    """What `lock` and `semaphore` acquire. `lost` is set, and `cause` says why, before somebody else is granted it."""
    lost: asyncio.Event
    preempted: asyncio.Event  # a waiter wants it; release it soon
    _core: Connection

    async def _begin(self) -> Lease:
        if self._state != "new" or self in self._core._pending:
            raise RuntimeError("this lock was awaited before; call lock again for another one")
        self.lost, self.preempted, self._gone = asyncio.Event(), asyncio.Event(), asyncio.Event()
        core = self._core
        core._bind()
        try:
            await core._run(self._acquire())
        except asyncio.CancelledError:
            await self._is_gone(0.9)  # after this the loop may end
            raise
        return self

    async def _is_gone(self, seconds: float) -> bool:
        """Waits until nothing is owed, and reports whether it is so."""
        work = asyncio.ensure_future(self._gone.wait())
        try:
            await asyncio.wait({work}, timeout=seconds)
        finally:
            work.cancel()
        return bool(self._gone.is_set())

    async def release(self) -> None:
        """Releases it, or raises. What no gateway answered is tried again in the background, until the ttl is over."""
        self._end("released")
        if self._state == "released":
            answered = await self._is_gone(min(self._core._timeout, self.ttl))
            if self._failure or not answered:
                raise self._failure or Unavailable("%r is not released yet; no gateway has answered" % (self.name,))

class Acquiring:
    """A lease to await, or to use by `async with`."""
    def __init__(self, lease: Lease) -> None:
        self._lease = lease

    def __await__(self) -> Generator[Any, None, Lease]:
        return self._lease._begin().__await__()

    async def __aenter__(self) -> Lease:
        return await self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        try:
            await self._lease.release()
        except Error:
            if error is None:
                raise

class Connection(_Core):
    """Gateways of one cluster, for one event loop. Close it, or use it by `async with`."""
    _loop: Any = None
    _timer: Any = None

    def _reset(self) -> None:
        super()._reset()
        self._loop = self._timer = None
        self._tasks: Set[Any] = set()
        self._free: Dict[int, List[Streams]] = {}

    def _bind(self) -> None:
        """Has the loop that runs attend to the leases."""
        if self._loop is not asyncio.get_running_loop():
            if self._loop is not None and not self._loop.is_closed():
                raise Error("the connection is used in another event loop; connect in this one, too")
            self._loop, self._free = asyncio.get_running_loop(), {}
            self._closing = self._loop.create_future()
            self._busy = 0
            self._wake()

    async def _run(self, steps: Steps[T]) -> T:
        """Carries out steps in this task."""
        self._bind()
        try:
            step: Any = next(steps)
            while True:
                try:
                    a = await (self._once(*step) if isinstance(step, tuple) else self._pause(step))
                except BaseException as e:
                    step = steps.throw(e)
                else:
                    step = steps.send(a)
        except StopIteration as e:
            return e.value  # type: ignore[no-any-return]

    async def _pause(self, seconds: float, work: Any = None, closes: bool = True) -> None:
        """Waits for a task, or for a time, or until the connection is closed."""
        waits = {x for x in (work, closes and self._closing) if x}
        await asyncio.wait(waits, timeout=max(0, seconds), return_when=asyncio.FIRST_COMPLETED)
        if closes and self._closing.done():
            raise Cancelled("the connection is closed; connect again")

    async def _once(self, at: int, method: str, target: str, headers: Dict[str, str], body: bytes, limit: float, again: bool) -> _Answer:
        """Sends a request once. One that is not sent again takes a new connection, as an old one may just be closed."""
        where, sent = self._addresses[at].geturl(), []  # type: str, List[float]
        work = asyncio.ensure_future(self._exchange(at, method, target, headers, body, again, sent))
        work.add_done_callback(lambda t: t.cancelled() or t.exception())
        try:
            await self._pause(limit, work, method != "DELETE")
            if not work.done():
                raise TimeoutError("nothing came within %gs" % limit)
            return work.result()
        except Error:
            raise
        except Exception as e:
            failure = Unavailable("%s does not answer: %s" % (where, str(e) or type(e).__name__))
            failure.sent = bool(sent)
            raise failure from e
        finally:
            work.cancel()

    async def _exchange(self, at: int, method: str, target: str, headers: Dict[str, str], body: bytes, again: bool,
                        sent: List[float]) -> _Answer:
        a, free, goes_on = self._addresses[at], self._free.setdefault(at, []), False
        while free and again:
            reader, writer = free.pop()
            if not reader.at_eof() and not writer.transport.is_closing():
                break
            writer.transport.abort()
        else:
            reader, writer = await self._dial(a)
        lines = ["%s %s%s HTTP/1.1" % (method, a.path, target), "Host: " + a.netloc, "Accept-Encoding: identity",
                 "Content-Length: %d" % len(body), *("%s: %s" % x for x in headers.items()), "", ""]
        try:
            sent.append(_now())
            writer.write("\r\n".join(lines).encode() + body)
            answer, goes_on = await _response(reader, sent[0])
            return answer
        finally:
            if goes_on and not self._loop.is_closed():
                free.append((reader, writer))
            else:
                writer.transport.abort()

    async def _dial(self, a: Any) -> Streams:
        """Connects. A thread asks for the addresses of a name, as the loop would by its executor."""
        loop = asyncio.get_running_loop()
        tls, found = self._tls if a.scheme == "https" else None, loop.create_future()

        def look_up(flags: int = 0) -> Any:
            return socket.getaddrinfo(a.hostname, a.port or (443 if tls else 80), type=socket.SOCK_STREAM, flags=flags)

        def tell(addresses: Any, error: Optional[OSError]) -> None:
            if not found.done() and error is not None:
                found.set_exception(error)
            elif not found.done():
                found.set_result(addresses)

        def work() -> None:
            result: Tuple[Any, Optional[OSError]]
            try:
                result = look_up(), None
            except OSError as e:
                result = None, e
            try:
                loop.call_soon_threadsafe(tell, *result)
            except RuntimeError:
                pass  # the loop has ended

        try:
            found.set_result(look_up(socket.AI_NUMERICHOST))
        except OSError:
            try:
                threading.Thread(target=work, name="signalbox-names", daemon=True).start()
            except RuntimeError:  # the program ends
                work()
        failure = OSError("the name has no address")
        for *_, to in await found:
            try:
                return await asyncio.open_connection(*to[:2], ssl=tls, server_hostname=a.hostname if tls else None)
            except OSError as e:
                failure = e
        raise failure

    def _wake(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._loop is not None and not self._loop.is_closed():  # else the end of the program gives back what is owed
            self._timer = self._loop.call_soon(self._tick)

    def _tick(self) -> None:
        """Ends beliefs in time, and has tasks send what is due, so that no request can hold it up."""
        due, wake = self._take_due(_BUSY - self._busy)
        for x in due:
            task = self._loop.create_task(self._serve(x))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if self._held or self._owed:
            self._timer = self._loop.call_later(wake, self._tick)
            _busy.add(self)
        else:
            _busy.discard(self)

    async def _serve(self, lease: Lease) -> None:
        try:
            await self._run(lease._attend())
        except asyncio.CancelledError:  # the loop ends: this is the last time to give it back
            if lease in self._owed:
                await asyncio.wait({asyncio.ensure_future(self._run(lease._attend()))}, timeout=0.9)
            raise
        finally:
            self._served(lease)

    def lock(self, name: Name, *, ttl: float = 30, wait: float = 0, shared: bool = False, holder: str = "", hold: float = 0,
             data: bytes = b"") -> Acquiring:
        """Acquires a lock, by `await` or `async with`. Raises NotAcquired after `wait` seconds."""
        query = [("mode", "shared" if shared else "exclusive")]
        return Acquiring(Lease(self, name, query, ttl, wait, holder, hold, data))

    def semaphore(self, name: Name, *, count: int = 1, limit: int = 0, ttl: float = 30, wait: float = 0, key: str = "",
                  priority: Optional[int] = None, labels: Sequence[str] = (), slots: Sequence[str] = (), holder: str = "",
                  hold: float = 0, data: bytes = b"") -> Acquiring:
        """Acquires units of a semaphore, which is made with `limit` if there is none."""
        query = _semaphore(count, limit, key, priority, labels, slots)
        return Acquiring(Lease(self, name, query, ttl, wait, holder, hold, data))

    async def describe(self, name: Name) -> Dict[str, Any]:
        """Who holds a lock, and who waits for it."""
        return await self._run(self._describe(name))

    async def why(self, name: Name) -> List[str]:
        """Why this connection waits for a name, in sentences; empty: it does not."""
        return list((await self.describe(name)).get("why", []))

    def config(self, name: Name) -> Config:
        return Config(self, "config", name)

    def service(self, name: Name, zone: str = "") -> Service:
        return Service(self, "services", name, zone)

    def limit(self, name: Name) -> Limit:
        return Limit(self, "limits", name)

    async def close(self) -> None:
        """Gives back all that it holds. Raises when no gateway answers; what is left is free after its ttl."""
        self._bind()
        if not self._closing.done():
            self._closing.set_result(None)
        self._shut()
        left, since = -1, self._shut_at
        while self._pending or self._owed:
            if left != len(self._pending) + len(self._owed):
                left, since = len(self._pending) + len(self._owed), since if left < 0 else _now()
            elif _now() - since > 0.9:
                raise Unavailable("%d locks are not given back, as no gateway answers; they are free after their ttl" % left)
            await asyncio.sleep(0.01)
        for _, writer in sum(self._free.values(), []):
            writer.transport.abort()

    def _exit(self) -> None:
        if (self._held or self._owed) and self._loop.is_closed():
            asyncio.run(self.close())

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        try:
            await self.close()
        except Error:
            if error is None:
                raise

class _Named:
    def __init__(self, connection: Connection, kind: str, name: Name, zone: str = "") -> None:
        self._core, self._path = connection, _path(kind, name)
        self._query: Query = [("zone", zone)] if zone else []

    async def _read(self, kind: str) -> _Answer:
        return await self._core._run(self._core._ask("GET", self._path, self._query, kind=kind, fits=_shows))

    async def _changes(self, kind: str) -> AsyncIterator[Optional[_Answer]]:
        """Yields each other answer. A request that did not wait is followed by the next one a second later."""
        tag: Optional[str] = None
        while True:
            asked, former = _now(), tag
            a, tag = await self._core._run(self._core._change(self._path, self._query, kind, tag))
            if tag != former:
                yield a
            if former or a is None:
                await self._core._pause(asked + 1 - _now())

class Config(_Named):
    """A configuration: bytes with a version."""
    async def get(self) -> Value:
        """Raises NotFound if it is not set."""
        return _value(await self._read(_BYTES))  # type: ignore[no-any-return]

    async def set(self, data: bytes, version: Optional[int] = None) -> int:
        """Sets it, if it has this version (0: there is none yet). Raises VersionMismatch."""
        return await self._core._run(self._core._set(self._path, data, version))

    async def watch(self) -> AsyncIterator[Optional[Value]]:
        """Yields the value and each other one; None: it is not set."""
        async for a in self._changes(_BYTES):
            yield _value(a)

class Service(_Named):
    """The members of a service."""
    async def members(self) -> Dict[str, Any]:
        """`endpoints`, of which those that are `used` are to be called, and `live`."""
        return (await self._read(_JSON)).document

    async def watch(self) -> AsyncIterator[Dict[str, Any]]:
        """Yields the members and each change."""
        async for a in self._changes(_JSON):
            if a is not None:
                yield a.document

class Limit(_Named):
    """A rate limit."""
    async def take(self, units: int = 1, wait: float = 0, retry: bool = False) -> bool:
        """Takes units within `wait` seconds; False: there are none. With `retry` a take without an answer is sent again, and
        may count twice."""
        return await self._core._run(self._core._take(self._path, units, wait, retry))

async def _response(reader: asyncio.StreamReader, sent: float) -> Tuple[_Answer, bool]:
    """Reads an answer of HTTP/1.1, and reports whether its connection goes on."""
    async def line() -> str:
        text = await reader.readline()
        if not text.endswith(b"\n"):
            raise EOFError("the connection was closed in the middle of an answer")
        return text.decode("latin-1").strip()

    def size(text: str, base: int) -> int:
        if not re.fullmatch("[0-9a-fA-F]{1,8}", text) or int(text, base) > _MAX_BODY:
            raise ValueError("the answer has the length %r" % text[:40])
        return int(text, base)

    status, first, body, headers = 100, "", bytearray(), {}  # type: int, str, bytearray, Dict[str, str]
    while status < 200:
        first, headers = await line(), {}
        if not re.match("HTTP/1[.][01] [1-5][0-9][0-9]( |$)", first):
            raise ValueError("the answer begins with %r, which is not HTTP" % first[:40])
        status = int(first[9:12])
        while text := await line():
            key, _, value = text.partition(":")
            if len(headers) > 200 or headers.setdefault(key.lower(), value.strip()) != value.strip() and key.lower() == "content-length":
                raise ValueError("the answer has two lengths, or very many headers")
    if headers.get("transfer-encoding", "").lower() == "chunked":
        while n := size((await line()).partition(";")[0].strip(), 16):
            body += (await reader.readexactly(n + 2))[:n]
            size("%x" % len(body), 16)
        while await line():
            pass  # trailers
    elif status not in (204, 304):
        body += await reader.readexactly(size(headers.get("content-length", ""), 10))
    goes_on = first[7] == "1" and headers.get("connection", "").lower() != "close"
    return _Answer(status, headers, bytes(body), sent, "", {}), goes_on

_busy: Set[Connection] = set()  # they live to the end of the program, which gives back what their loops left

def connect(*addresses: str, token: Optional[str] = None, session: Optional[str] = None, node: str = "/default",
            timeout: float = 10, context: Optional[ssl.SSLContext] = None) -> Connection:
    """Connects, by the first request. `token` is the credential; `session` is a name for the one lease at a time that is to
    outlive the program, hard to guess; `timeout` bounds a request beside its wait."""
    return Connection(addresses, token, session, node, timeout, context)
