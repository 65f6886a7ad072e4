"""Takes turns at locks, in threads or in tasks, and prints each hold: its name, token, and when it was relied on, by the
monotonic clock in nanoseconds. Arguments: the client's folder, threads or tasks, seconds, how many, how many locks, addresses."""

import asyncio
import json
import random
import sys
import threading
import time

sys.path.insert(0, sys.argv[1])
import signalbox  # noqa: E402
import signalbox.aio  # noqa: E402

kind, lasts, many, locks, addresses = sys.argv[2], float(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]), sys.argv[6:]
over = time.monotonic() + lasts
output = threading.Lock()


def say(lease, began, ended):
    """A hold that was relied on from one moment to another."""
    with output:
        print(json.dumps({"name": lease.name, "token": lease.token, "began": began, "ended": ended}), flush=True)


def name(turn):
    return "turns-%d" % (turn % locks)


def relied(lease, ended):
    """Whether the lease counts still; the last moment at which it did is kept."""
    now = time.monotonic_ns()
    if lease.held:
        ended[0] = now
        return True
    return False


def thread(connection, i):
    turn = i
    while time.monotonic() < over:
        turn += 1
        try:
            lease = connection.lock(name(turn), ttl=5, wait=random.uniform(0.5, 8))
        except (signalbox.Error, OSError):
            time.sleep(0.05)
            continue
        began, end = time.monotonic_ns(), time.monotonic() + random.choice([0.002, 0.05, 1, 6])
        ended = [began]
        while relied(lease, ended) and time.monotonic() < end:
            time.sleep(0.002)
        say(lease, began, ended[0])
        try:
            lease.release()
        except signalbox.Error:
            pass


async def task(connection, i):
    turn = i
    while time.monotonic() < over:
        turn += 1
        try:
            lease = await connection.lock(name(turn), ttl=5, wait=random.uniform(0.5, 8))
        except (signalbox.Error, OSError):
            await asyncio.sleep(0.05)
            continue
        began, end = time.monotonic_ns(), time.monotonic() + random.choice([0.002, 0.05, 1, 6])
        ended = [began]
        while relied(lease, ended) and time.monotonic() < end:
            await asyncio.sleep(0.002)
        say(lease, began, ended[0])
        try:
            await lease.release()
        except signalbox.Error:
            pass


async def tasks():
    connection = signalbox.aio.connect(*addresses, timeout=3)
    await asyncio.gather(*(task(connection, i) for i in range(many)))
    try:
        await connection.close()
    except signalbox.Error:
        pass


if kind == "tasks":
    asyncio.run(tasks())
else:
    shared = signalbox.connect(*addresses, timeout=3)
    threads = [threading.Thread(target=thread, args=(shared, i)) for i in range(many)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    try:
        shared.close()
    except signalbox.Error:
        pass
