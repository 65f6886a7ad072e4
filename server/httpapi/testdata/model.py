"""Holds Python's client to a model, on virtual time: `model.py FOLDER FIRST SEEDS`.

Callers lock, wait, hold, release, forget and give up, through two gateways that a random script lets
refuse, delay, lose and lie. The model knows what was said in each answer that a client has read.
"""

import heapq
import itertools
import json
import random
import sys
import urllib.parse

sys.path.insert(0, sys.argv[1])
import signalbox as sb  # noqa: E402


class Wrong(Exception):
    pass


class World:
    """The clock, what happens at which time, the gateways, and the cluster behind them."""

    given = None  # a session's name for all callers of the process

    def __init__(self, seed):
        self.random = random.Random(seed)
        random.seed(seed)
        self.now, self.heap, self.count = 0.0, [], itertools.count()
        self.sessions, self.locks, self.tokens = {}, {}, itertools.count(1)
        self.leases = {}  # by the name of the session
        self.healthy = self.random.random() < 0.5  # the second gateway always answers
        self.healed = self.random.uniform(20, 60)  # no fault after this

    def at(self, seconds, call, *args):
        heapq.heappush(self.heap, (self.now + seconds, next(self.count), call, args))

    def run(self, until):
        while self.heap and self.heap[0][0] <= until:
            self.now, _, call, args = heapq.heappop(self.heap)
            call(*args)
        self.now = until

    # The network: a request has one fate.

    def fate(self, at):
        if self.now > self.healed or at == 1 and self.healthy:
            return "passes"
        if int(self.now / 7 + at * 3) % 3 == 0:  # for a while, nothing passes
            return ("refused", "lost", "answer lost", "502")[int(self.now / 21 + at) % 4]
        return self.random.choices(
            ("passes", "refused", "lost", "late", "answer lost", "answer late", "502", "503", "junk"),
            (10, 1, 1, 1, 1, 1, 1, 1, 1))[0]

    def send(self, process, step):
        at, method, target, headers, body, limit, again = step
        turn, sent, fate, lease = process.turn, self.now, self.fate(at), process.lease
        lease.asks(method, fate)
        request = {"open": True, "method": method, "url": urllib.parse.urlsplit(target), "session": headers["Signalbox-Session"], "lease": lease}

        def answered(status, document, kind="application/json", says=False):
            answer = sb._Answer(status, {"content-type": kind, "retry-after": "1"}, json.dumps(document).encode(), sent, "", {})
            if process.turn == turn and request["open"]:
                lease.hears(method, says and status in (200, 202, 410))
                if says and document.get("state") in ("acquired", "alive"):
                    lease.told(sent + (document["waited_ms"] + document["expires_in_ms"]) / 1000)
                process.resume(turn, answer)

        def reply(status, document):
            kind = "application/json" if status < 400 else "application/problem+json"
            if status >= 400:
                document = {"code": document, "detail": "%s." % document, "status": status}
            delay = self.random.uniform(0.001, 0.1) if fate != "answer late" else self.random.uniform(0.1, 20)
            if fate != "answer lost":
                self.at(delay, answered, status, document, kind, True)

        def over():
            if request["open"]:
                request["open"] = False
                if process.turn == turn:
                    lease.hears(method, False)
                process.fail(turn, sb.Unavailable("nothing came"))

        if fate == "refused":
            failure = sb.Unavailable("refused")
            failure.sent = False
            lease.hears(method, False)
            return self.at(0.001, process.fail, turn, failure)
        self.at(limit, over)
        if fate == "502":
            return self.at(0.01, answered, 502, {}, "text/html")
        if fate == "503":
            return self.at(0.01, reply, 503, "unavailable")
        if fate == "junk":
            return self.at(0.01, answered, 200, self.random.choice(
                [{}, {"token": 1}, {"state": "acquired", "token": 7, "count": "max", "expires_in_ms": 10**9, "waited_ms": 0},
                 {"state": "alive", "expires_in_ms": 1000, "waited_ms": 10**8}, {"state": "acquired"}]))
        if fate != "lost" and not (fate == "late" and method == "DELETE" and self.given):
            delay = self.random.uniform(0.001, 0.1) if fate != "late" else self.random.uniform(0.1, 20)
            self.at(delay, self.serve, request, reply)

    # The gateways and the cluster: one state, as all is confirmed.

    def serve(self, request, reply):
        name, url, arrived = request["session"], request["url"], self.now
        query = dict(urllib.parse.parse_qsl(url.query))
        s = self.sessions.get(name)
        if request["method"] == "POST" and url.path.startswith("/v1/locks/") and s is None:
            s = self.sessions[name] = {"name": name, "ttl": float(query["ttl"][:-1]), "ended": False, "uses": 0, "lock": url.path}
        if s is None or s["ended"]:
            return reply(410, "session_expired")
        s["uses"] += 1  # it does not end while it is served, and then after the ttl and a second

        def answer(status, document):
            s["uses"] += 1
            self.at(s["ttl"] + 1, self.unused, s)
            self.at(0, self.unused, s)
            if isinstance(document, dict) and "state" in document:
                share = self.random.choice((1, 1, 0.6))
                document.update(expires_in_ms=int(s["ttl"] * 1000 * share), waited_ms=int((self.now - arrived) * 1000))
            reply(status, document)

        lock = self.locks.setdefault(s["lock"], {"owner": None, "token": 0, "queue": []})
        if request["method"] == "DELETE":
            lease = self.leases[name]
            if lease.wanted():
                raise Wrong("a session ends by which somebody holds, or waits: %s, %s %r until %.3f" % (lease.state, lease._state, lease.cause, lease.belief))
            self.end(s)
            return answer(200, {"ended": True})
        if url.path.endswith("/keepalive"):
            return answer(200, {"state": "alive"}) if lock["owner"] is s else answer(410, "lease_lost")
        until = self.now + float(query.get("wait", "0ms")[:-2]) / 1000

        def look():
            if s["ended"]:
                return reply(410, "session_expired")
            if lock["owner"] is s:
                return answer(200, {"state": "acquired", "token": lock["token"], "count": "max"})
            if "wait" not in query:
                lock["queue"].remove(s)
                return answer(409, "not_acquired")
            if self.now >= until:
                return answer(202, {"state": "waiting"})
            if not request["open"]:  # the caller has hung up, and has five seconds to come again
                self.at(5, self.absent, s, lock, s["asked"])
                return answer(202, {"state": "waiting"})
            self.at(min(0.05, max(0.0001, until - self.now)), look)

        s["asked"] = s.get("asked", 0) + 1
        if lock["owner"] is not s and s not in lock["queue"]:
            lock["queue"].append(s)
        self.grant(lock)
        look()

    def absent(self, s, lock, asked):
        if s["asked"] == asked and not s["ended"] and lock["owner"] is not s and s in lock["queue"]:
            self.place_lost(s)
            lock["queue"].remove(s)

    def unused(self, s):
        s["uses"] -= 1
        if s["uses"] == 0 and not s["ended"]:
            self.place_lost(s)
            self.end(s)

    def place_lost(self, s):
        lease = self.leases[s["name"]]
        if self.healthy and lease.wanted():
            raise Wrong("a place or a lease is lost though a gateway always answers: %s" % lease.state)

    def end(self, s):
        s["ended"] = True
        lock = self.locks[s["lock"]]
        if s in lock["queue"]:
            lock["queue"].remove(s)
        if lock["owner"] is s:
            lock["owner"] = None
        self.grant(lock)

    def grant(self, lock):
        if lock["owner"] is None and lock["queue"]:
            lock["owner"], lock["token"] = lock["queue"].pop(0), next(self.tokens)
            for other in self.leases.values():
                if other is not self.leases[lock["owner"]["name"]] and other._path == lock["owner"]["lock"] and other.held:
                    raise Wrong("it is granted while somebody else believes to hold it")


class Given(World):
    """A cluster where all callers use one session, which serves one of them at a time; others hold the same locks.

    No release is late here: one without a token that arrives behind the next acquire of its name takes that.
    """

    given = "a-given-session"

    def __init__(self, seed):
        super().__init__(seed)
        self.s = None
        for path in ("/v1/locks/a", "/v1/locks/b"):
            self.locks[path] = {"owner": None, "token": 0}
            self.at(self.random.uniform(0, 20), self.others, self.locks[path])

    def others(self, lock):
        if lock["owner"] is None:
            lock["owner"] = "others"
        elif lock["owner"] == "others":
            lock["owner"] = None
        self.at(self.random.uniform(0.5, 10), self.others, lock)

    def end(self, s):
        s["ended"] = True
        for lock in self.locks.values():
            lock["owner"] = None if lock["owner"] is s else lock["owner"]

    def place_lost(self, s):
        for lease in self.leases.values():
            if self.healthy and lease.state == "holds" and lease.wanted():
                raise Wrong("the session ends by which somebody holds, though a gateway always answers")

    def serve(self, request, reply):
        url, arrived, s, lease = request["url"], self.now, self.s, request["lease"]
        query = dict(urllib.parse.parse_qsl(url.query))
        if request["method"] == "POST" and url.path.startswith("/v1/locks/") and s is None:
            s = self.s = {"ttl": float(query["ttl"][:-1]), "ended": False, "uses": 0}
        if s is None or s["ended"]:
            return reply(410, "session_expired")
        s["uses"] += 1

        def answer(status, document):
            s["uses"] += 1
            self.at(s["ttl"] + 1, self.unused, s)
            self.at(0, self.unused, s)
            if isinstance(document, dict) and "state" in document:
                document.update(expires_in_ms=int(s["ttl"] * 1000), waited_ms=int((self.now - arrived) * 1000))
            reply(status, document)

        if url.path.endswith("/keepalive"):
            return answer(200, {"state": "alive"}) if self.locks["/v1/locks/" + query["holding"]]["owner"] is s else answer(410, "lease_lost")
        lock = self.locks[url.path]
        if request["method"] == "DELETE":
            for other in self.leases.values():
                if other is not lease and other._path == lease._path and other.wanted() and query.get("token", lock["token"]) == lock["token"]:
                    raise Wrong("what another lease of the session holds, or waits for, is given back")
            if released := lock["owner"] is s and int(query.get("token", lock["token"])) == lock["token"]:
                lock["owner"] = None
            return answer(200, {"released": released})
        until = self.now + float(query.get("wait", "0ms")[:-2]) / 1000

        def look():
            if s["ended"]:
                return reply(410, "session_expired")
            if lock["owner"] is None:
                lock["owner"], lock["token"] = s, next(self.tokens)
            if lock["owner"] is s:
                return answer(200, {"state": "acquired", "token": lock["token"], "count": "max"})
            if "wait" not in query:
                return answer(409, "not_acquired")
            if self.now >= until or not request["open"]:
                return answer(202, {"state": "waiting"})
            self.at(min(0.05, max(0.0001, until - self.now)), look)

        look()


world = None
sb._now = lambda: world.now


class Event:
    flag = False

    def set(self):
        self.flag = True


class Lease(sb._Lease):
    """A lease, and what the model knows of it."""

    def __init__(self, core, *args):
        super().__init__(core, *args)
        self.lost, self.preempted, self._gone = Event(), Event(), Event()
        self.belief, self.state, self.silent = -1.0, "new", 0.0
        self.failed, self.reached, self.given, self.deleted = None, False, False, 0.0
        world.leases[self if world.given else self._session] = self

    def __setattr__(self, key, value):
        super().__setattr__(key, value)
        if key == "_session" and not world.given:
            world.leases[value] = self

    def wanted(self):
        return self.state == "waits" or self.state == "holds" and world.now < self.belief

    def told(self, until):
        if self.lost.flag:
            return
        self.belief, self.silent = max(self.belief, until), world.now
        world.at(max(0, until - world.now) + 0.001, self.check)

    def asks(self, method, fate):
        self.silent, self.failed, self.reached = world.now, None, self.reached or fate != "refused"
        if method == "DELETE":
            self.deleted = world.now

    def hears(self, method, good):
        if method == "DELETE":
            self.given = self.given or good
        elif not good:
            self.failed = world.now

    def owes(self, since):
        """Looks whether it is given back: with one request after the other, until one is answered or the ttl is over."""
        if self.given or not self.reached or isinstance(self.cause, sb.SessionExpired) or world.now > since + self.ttl:
            return
        if world.now - max(since, self.deleted) > min(10 / 3, max(0.2, self.ttl / 6)) + 1.1:
            raise Wrong("it is %s, and not given back" % self.state)
        world.at(0.3, self.owes, since)

    def check(self):
        if self.state != "holds":
            return
        if world.now > self.belief and not self.lost.flag:
            raise Wrong("lost is not set when the belief is over")
        if world.now >= self.belief and self.held:
            raise Wrong("it is believed for longer than was said")


class Process:
    """Steps under way."""

    def __init__(self, lease, steps, done=lambda value, error: None):
        self.lease, self.steps, self.done, self.turn = lease, steps, done, 0

    def go(self, call, *args):
        self.turn += 1
        try:
            step = call(*args)
        except StopIteration as e:
            return self.done(e.value, None)
        except Wrong:
            raise
        except Exception as e:
            return self.done(None, e)
        if isinstance(step, tuple):
            world.send(self, step)
        else:
            world.at(step, self.resume, self.turn, None)

    def resume(self, turn, value):
        if turn == self.turn:
            self.go(self.steps.send, value)

    def fail(self, turn, error):
        if turn == self.turn:
            self.go(self.steps.throw, error)


class Core(sb._Core):
    """A connection that attends to its leases on the world's clock."""

    tick = 0

    def close(self):
        pass

    def _wake(self):
        self.tick += 1
        world.at(0, self.attend, self.tick)

    def attend(self, tick):
        if tick != self.tick:
            return
        due, wake = self._take_due(sb._BUSY - self._busy)
        for x in due:
            p = Process(x, x._attend(), lambda value, error, x=x: self._served(x))
            p.go(next, p.steps)
        if self._held or self._owed:
            world.at(wake, self.attend, tick)


def caller(core, rng):
    """Begins a caller that locks once, and does then what callers do."""
    ttl, wait = rng.choice((1, 3, 6, 10, 30)) if not world.given else 10, rng.choice((0, 5, 20, 60))
    lease = Lease(core, rng.choice(("a", "b")), [("mode", "exclusive")], ttl, wait, "", 0, b"")

    def done(value, error):
        if error is not None:
            if lease.state == "waits" and not isinstance(error, sb.Error):
                raise error
            lease.state = "failed" if lease.state != "gave up" else lease.state
            if rng.random() < 0.5:
                lease._end("released")  # as the call of threads does, and a program by asyncio may
            lease.owes(world.now)
            if lease.held:
                raise Wrong("it failed, and is held")
            return
        if lease.state == "gave up":
            raise Wrong("what was given up is held")
        lease.state = "holds"
        if world.given and any(x is not lease and x.state == "holds" and x.held for x in world.leases.values()):
            raise Wrong("two leases of one session are held at once")
        look()
        if rng.random() < 0.7:
            world.at(rng.uniform(0, 3 * ttl), release)

    def release():
        if lease.state == "holds":
            lease._end("released")
            lease.state = "released"
            lease.owes(world.now)
            if lease.held:
                raise Wrong("it is released, and held")

    def look():
        if lease.state != "holds":
            return
        lease.check()
        if not lease.held and lease.state == "holds":
            lease.state = "lost"
            lease.owes(world.now)
        elif lease.held and lease.failed is not None and world.now - lease.failed > 1.1:
            raise Wrong("a renewal that failed is not repeated soon")
        elif lease.held and world.now - max(lease.silent, lease.belief - ttl) > ttl / 2.9 + max(1, ttl / 6) + 0.5:
            raise Wrong("it is held and was not renewed for long: %s" % (world.now - lease.silent))
        world.at(rng.uniform(0.01, min(0.5, ttl / 3)), look)

    def give_up():
        if lease.state == "waits":
            lease.state = "gave up"
            process.fail(process.turn, sb.Cancelled("given up"))

    process = Process(lease, lease._acquire(), done)
    lease.state = "waits"
    process.go(next, process.steps)
    if rng.random() < 0.3:
        world.at(rng.uniform(0, 30), give_up)


def left():
    """Raises if something is held or waited for by nobody, a while after the network is well again."""
    for s in world.sessions.values():
        lease = world.leases[s["name"]]
        if not s["ended"] and not lease.wanted():
            world.at(3, still, s, lease)


def still(s, lease):
    if not s["ended"] and not lease.wanted():
        raise Wrong("a session is left that nobody wants: %s, %s" % (lease.state, lease._state))


def play(seed):
    global world
    world = World(seed) if seed % 3 else Given(seed)
    sb._reserved.clear()
    cores = [Core(("http://one", "http://two"), None, world.given, "/default", 10, None) for _ in range(3)]
    for _ in range(world.random.randint(3, 12)):
        world.at(world.random.uniform(0, 40), caller, world.random.choice(cores), world.random)
    # Requests that are late may arrive until then. What they bring about has an end, too.
    if not world.given:
        world.at(world.healed + 25, left)
    world.run(world.healed + 150)
    if world.given and sb._reserved and not any(x.held for x in world.leases):
        raise Wrong("nobody holds or waits, and the session is not free")
    if not world.given:
        left()
    world.run(world.healed + 160)


failed = 0
for seed in range(int(sys.argv[2]), int(sys.argv[2]) + int(sys.argv[3])):
    try:
        play(seed)
    except Wrong as e:
        failed += 1
        print("seed %d, after %.3f s: %s" % (seed, world.now, e))
        if failed == 5:
            break
sys.exit(1 if failed else 0)
