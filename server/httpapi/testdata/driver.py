"""Carries out commands of the tests, one a line, with the client of Python for threads. clients_test.go has the words."""

import json
import os
import pickle
import sys
import threading
import time
import weakref

sys.path.insert(0, sys.argv[1])
import signalbox  # noqa: E402

connections, leases, cancels, output = weakref.WeakValueDictionary(), {}, {}, threading.Lock()
kept = []


def seconds(c, key, default=0):
    return c.get(key, default) / 1000


def forked(lease):
    """What the child of a fork says about a lease of its parent, and whether it can acquire for itself."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        says = {"held": lease.held, "cause": str(lease.cause)}
        try:
            lease.release()  # it is the parent's, so nothing happens
            connection = next(iter(connections.values()))
            with connection.lock("of-the-child", ttl=5) as own:
                says["own"] = own.held
            connection.close()
        except BaseException as e:
            says["own"] = repr(e)
        os.write(write, json.dumps(says).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    return json.loads(os.read(read, 10_000))


def crowd(c, connection):
    """Locks a name in many threads at once, again and again."""
    spans, errors, mutex, counts = [], {}, threading.Lock(), [0] * c["many"]

    def one(i):
        for _ in range(c["rounds"]):
            try:
                lease = connection.lock(c["name"], ttl=seconds(c, "ttl", 10_000), wait=seconds(c, "wait"))
                began = time.monotonic_ns()
                time.sleep(0.001)
                ended = time.monotonic_ns()
                if lease.held:
                    with mutex:
                        spans.append([lease.token, began, ended])
                        counts[i] += 1
                lease.release()
            except signalbox.Error as e:
                with mutex:
                    errors[name_of(e)] = errors.get(name_of(e), 0) + 1

    threads = [threading.Thread(target=one, args=(i,)) for i in range(c["many"])]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return {"spans": spans, "least": min(counts), "errors": errors}


def do(c):
    what = c["do"]
    if what == "connect":
        connections[c["as"]] = connection = signalbox.connect(
            *c["addresses"], session=c.get("session"), timeout=seconds(c, "timeout", 10_000))
        kept.append(connection)
        return {}
    if what == "cancel":
        cancels[c["lease"]].set()
        return {}
    if what == "left":
        return {"lines": [t.name for t in threading.enumerate() if t.name.startswith("signalbox")]}
    if "lease" in c:
        lease = leases[c["lease"]]
        if what == "release":
            lease.release()
        elif what == "lost":
            lease.lost.wait(seconds(c, "wait"))
        elif what == "forked":
            try:
                pickle.dumps(lease)
            except TypeError as e:
                return {**forked(lease), "detail": str(e)}
        return {"held": lease.held, "lost": lease.lost.is_set(), "cause": type(lease.cause).__name__,
                "loss": getattr(lease.cause, "loss", {}).get("cause", ""), "since": getattr(lease.cause, "loss", {}).get("since_ms", 0)}
    connection = connections[c["with"]]
    name = bytes.fromhex(c["hex"]) if "hex" in c else c.get("name")
    if what == "lock" or what == "semaphore":
        cancels[c["as"]] = cancel = threading.Event()
        of = {"ttl": seconds(c, "ttl", 30_000), "wait": seconds(c, "wait"), "holder": c.get("holder", ""), "cancel": cancel}
        if what == "semaphore":
            of.update(count=c["count"], limit=c["limit"])
        lease = leases[c["as"]] = getattr(connection, what)(name, **of)
        return {"token": lease.token, "held": lease.held}
    if what == "crowd":
        return crowd(c, connection)
    if what == "why":
        return {"lines": connection.why(name)}
    if what == "get":
        value = connection.config(name).get()
        return {"data": value.data.decode(), "version": value.version}
    if what == "set":
        return {"version": connection.config(name).set(c["data"].encode(), c.get("version"))}
    if what == "watch":
        return watch(c, connection)
    if what == "take":
        return {"held": connection.limit(name).take(c["units"], retry=c.get("retry", False))}
    if what == "members":
        return {"lines": [e["addr"] for e in connection.service(name).members()["endpoints"]]}
    connection.close()
    return {}


def watch(c, connection):
    for value in connection.config(c["name"]).watch():
        text = value.data.decode() if value else ""
        say({"id": c["id"], "more": True, "data": text, "version": value.version if value else 0})
        if text == c.get("until", "next"):
            return {"data": text}


def name_of(e):
    return "NotAcquired" if isinstance(e, signalbox.NotAcquired) else type(e).__name__


def say(answer):
    with output:
        print(json.dumps(answer), flush=True)


def answer(c):
    try:
        a = do(c)
    except (signalbox.Error, ValueError) as e:
        a = {"error": name_of(e), "holders": len(getattr(e, "holders", [])), "detail": str(e),
             "inTime": isinstance(e, TimeoutError), "caused": e.__cause__ is not None}
    except Exception as e:
        a = {"error": name_of(e), "detail": repr(e)}
    say({"id": c["id"], **a})


if __name__ == "__main__":
    for line in sys.stdin:
        threading.Thread(target=answer, args=(json.loads(line),), daemon=True).start()
