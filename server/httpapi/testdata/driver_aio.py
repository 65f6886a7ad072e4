"""Carries out commands of the tests, one a line, with the client of Python for asyncio. clients_test.go has the words."""

import asyncio
import json
import sys
import threading
import time

sys.path.insert(0, sys.argv[1])
import signalbox  # noqa: E402
import signalbox.aio  # noqa: E402

connections, leases, tasks = {}, {}, {}


def seconds(c, key, default=0):
    return c.get(key, default) / 1000


async def crowd(c, connection):
    """Locks a name in many tasks at once, again and again."""
    spans, errors, counts = [], {}, [0] * c["many"]

    async def one(i):
        for _ in range(c["rounds"]):
            try:
                lease = await connection.lock(c["name"], ttl=seconds(c, "ttl", 10_000), wait=seconds(c, "wait"))
                began = time.monotonic_ns()
                await asyncio.sleep(0.001)
                ended = time.monotonic_ns()
                if lease.held:
                    spans.append([lease.token, began, ended])
                    counts[i] += 1
                await lease.release()
            except signalbox.Error as e:
                errors[name_of(e)] = errors.get(name_of(e), 0) + 1

    await asyncio.gather(*(one(i) for i in range(c["many"])))
    return {"spans": spans, "least": min(counts), "errors": errors}


async def do(c):
    what = c["do"]
    if what == "connect":
        connections[c["as"]] = signalbox.aio.connect(
            *c["addresses"], session=c.get("session"), timeout=seconds(c, "timeout", 10_000))
        return {}
    if what == "cancel":
        tasks[c["lease"]].cancel()
        return {}
    if what == "left":
        ours = [t for t in asyncio.all_tasks() if t.get_coro().__name__ not in ("answer", "main")]
        return {"lines": [str(t) for t in ours] + [t.name for t in threading.enumerate() if t.name.startswith("signalbox")]}
    if "lease" in c:
        lease = leases[c["lease"]]
        if what == "release":
            await lease.release()
        elif what == "lost":
            await asyncio.wait({asyncio.ensure_future(lease.lost.wait())}, timeout=seconds(c, "wait"))
        return {"held": lease.held, "lost": lease.lost.is_set(), "cause": type(lease.cause).__name__,
                "loss": getattr(lease.cause, "loss", {}).get("cause", ""), "since": getattr(lease.cause, "loss", {}).get("since_ms", 0)}
    connection = connections[c["with"]]
    name = bytes.fromhex(c["hex"]) if "hex" in c else c.get("name")
    if what == "lock" or what == "semaphore":
        tasks[c["as"]] = asyncio.current_task()
        of = {"ttl": seconds(c, "ttl", 30_000), "wait": seconds(c, "wait"), "holder": c.get("holder", "")}
        if what == "semaphore":
            of.update(count=c["count"], limit=c["limit"])
        lease = leases[c["as"]] = await getattr(connection, what)(name, **of)
        return {"token": lease.token, "held": lease.held}
    if what == "crowd":
        return await crowd(c, connection)
    if what == "why":
        return {"lines": await connection.why(name)}
    if what == "get":
        value = await connection.config(name).get()
        return {"data": value.data.decode(), "version": value.version}
    if what == "set":
        return {"version": await connection.config(name).set(c["data"].encode(), c.get("version"))}
    if what == "watch":
        async for value in connection.config(c["name"]).watch():
            text = value.data.decode() if value else ""
            say({"id": c["id"], "more": True, "data": text, "version": value.version if value else 0})
            if text == c.get("until", "next"):
                return {"data": text}
    if what == "take":
        return {"held": await connection.limit(name).take(c["units"], retry=c.get("retry", False))}
    if what == "members":
        return {"lines": [e["addr"] for e in (await connection.service(name).members())["endpoints"]]}
    await connection.close()
    return {}


def name_of(e):
    return "NotAcquired" if isinstance(e, signalbox.NotAcquired) else type(e).__name__


def say(answer):
    print(json.dumps(answer), flush=True)


async def answer(c):
    try:
        a = await do(c)
    except asyncio.CancelledError:
        a = {"error": "Cancelled"}
    except (signalbox.Error, ValueError) as e:
        a = {"error": name_of(e), "holders": len(getattr(e, "holders", [])), "detail": str(e),
             "inTime": isinstance(e, TimeoutError), "caused": e.__cause__ is not None}
    except Exception as e:
        a = {"error": name_of(e), "detail": repr(e)}
    say({"id": c["id"], **a})


async def main():
    loop, under_way, end = asyncio.get_running_loop(), set(), asyncio.Event()

    def begin(line):
        task = loop.create_task(answer(json.loads(line)))
        under_way.add(task)
        task.add_done_callback(under_way.discard)

    def read():
        for line in sys.stdin:
            loop.call_soon_threadsafe(begin, line)
        loop.call_soon_threadsafe(end.set)

    threading.Thread(target=read, name="input", daemon=True).start()
    await end.wait()


asyncio.run(main())
