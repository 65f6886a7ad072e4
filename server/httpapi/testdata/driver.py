"""Carries out commands of the tests, one a line, with the client of Python."""

import json
import os
import pickle
import sys
import threading

sys.path.insert(0, sys.argv[1])
import signalbox  # noqa: E402

connections, leases, output = {}, {}, threading.Lock()


def seconds(c, key, default=0):
    return c.get(key, default) / 1000


def forked(lease):
    """What the child of a fork says about a lease of its parent."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, b"%d" % lease.held)
        os._exit(0)
    os.waitpid(pid, 0)
    return os.read(read, 1) == b"1"


def do(c):
    what = c["do"]
    if what == "connect":
        connections[c["as"]] = signalbox.connect(*c["addresses"], session=c.get("session"), timeout=seconds(c, "timeout", 10_000))
        return {}
    if "lease" in c:
        lease = leases[c["lease"]]
        if what == "release":
            lease.release()
        elif what == "lost":
            lease.lost.wait(seconds(c, "wait"))
        answer = {"held": lease.held, "lost": lease.lost.is_set(), "cause": type(lease.cause).__name__}
        if what == "forked":
            answer["held"] = forked(lease)
            try:
                pickle.dumps(lease)
            except TypeError as e:
                answer["cause"] = str(e)
        return answer
    connection = connections[c["with"]]
    if what == "lock" or what == "semaphore":
        of = {"ttl": seconds(c, "ttl", 30_000), "wait": seconds(c, "wait"), "holder": c.get("holder", "")}
        if what == "semaphore":
            of.update(count=c["count"], limit=c["limit"])
        lease = leases[c["as"]] = getattr(connection, what)(c["name"], **of)
        return {"token": lease.token, "held": lease.held}
    if what == "why":
        return {"lines": connection.why(c["name"])}
    if what == "get":
        value = connection.config(c["name"]).get()
        return {"data": value.data.decode(), "version": value.version}
    if what == "set":
        return {"version": connection.config(c["name"]).set(c["data"].encode(), c.get("version"))}
    if what == "watch":
        seen = []
        for value in connection.config(c["name"]).watch():
            seen.append(value.data.decode())
            if len(seen) == 1:
                connection.config(c["name"]).set(b"next")
            else:
                return {"lines": seen}
    if what == "take":
        return {"held": connection.limit(c["name"]).take(c["units"])}
    if what == "members":
        return {"lines": [e["addr"] for e in connection.service(c["name"]).members()["endpoints"]]}
    connection.close()
    return {}


def answer(c):
    try:
        a = do(c)
    except signalbox.Error as e:
        name = type(e).__name__ if type(e) is not signalbox.NotAcquiredInTime else "NotAcquired"
        a = {"error": name, "holders": len(getattr(e, "holders", []))}
    with output:
        print(json.dumps({"id": c["id"], **a}), flush=True)


for line in sys.stdin:
    threading.Thread(target=answer, args=(json.loads(line),), daemon=True).start()
