// Runs the client of TypeScript on virtual time, against a scripted cluster with two gateways that
// delay, refuse and lose requests and answers by a seed, and compares each request, and what each
// lease says of itself, with a model. Arguments: the client's folder, the first seed, how many.
const [folder, first, many] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4])];
const { setImmediate } = globalThis;

let random, real, slept, asleep, woke, queue, order, offset; // of the run; times in milliseconds
const pick = (list) => list[Math.floor(random() * list.length)];
const between = (a, b) => a + random() * (b - a);
function seeded(n) { // mulberry32
  return () => {
    n = n + 0x6d2b79f5 | 0;
    let t = Math.imul(n ^ n >>> 15, 1 | n);
    t = t + Math.imul(t ^ t >>> 7, 61 | t) ^ t;
    return ((t ^ t >>> 14) >>> 0) / 2 ** 32;
  };
}

let faults = [];
function check(ok, text) { if (!ok) faults.push(`at ${real.toFixed(1)} ms: ${text()}`); }
function must(call, ok, text) { check(ok, () => `${text()}: ${call.text}`); }

/** Has f run at a time. What the client's machine does is late by as long as that sleeps. */
function at(time, f, kind = "") {
  const event = { time: kind === "" ? time : Math.max(time, asleep), f, kind, order: order++, ref: kind === "timer" };
  queue.push(event);
  return event;
}

// The client's platform.
performance.now = () => real - slept;
Date.now = () => 1e12 + Math.floor(real + offset);
Math.random = () => random();
let named = 0;
crypto.randomUUID = () => `s${named++}-of-a-lease`;
globalThis.setTimeout = (f, ms = 0) => {
  if (!(ms >= 0)) faults.push(`a timer is set to ${ms}`);
  const timer = at(real + Math.max(1, Math.trunc(ms)), f, "timer");
  timer.unref = () => { timer.ref = false; return timer; };
  return timer;
};
globalThis.clearTimeout = (timer) => { const i = queue.indexOf(timer); if (i >= 0) queue.splice(i, 1); };
globalThis.fetch = (url, o) => new Promise((resolve, reject) => {
  if (o.signal.aborted) return reject(o.signal.reason);
  const { hostname, pathname, searchParams } = new URL(url), [, before, path] = /^(.*?)(\/v1\/.*)$/.exec(pathname);
  check(before === (hostname === "g0" ? "" : "/behind/a/proxy"), () => `${url} is asked`);
  const r = {
    gateway: gateways[Number(hostname.slice(1))], method: o.method, path, query: searchParams,
    session: o.headers["Signalbox-Session"] ?? "", tag: o.headers["If-None-Match"],
    sent: real, sentTicks: real - slept, open: true, resolve, reject,
  };
  o.signal.addEventListener("abort", () => {
    if (!r.open) return;
    shut(r);
    reject(o.signal.reason);
    r.left?.();
  });
  flying.add(r);
  seen(r);
  r.gateway.take(r);
});
const { connect, SignalboxError, NotAcquired, Unavailable } = await import(`${folder}/signalbox.js`);

/** Notes that a request has no answer of a gateway: it is repeated soon, and elsewhere. */
function failed(r) {
  const c = r.claim;
  if (!c) return;
  if (r.path === "/v1/session/keepalive") c.due = Math.min(c.due, real - slept + c.call.ttl / 12);
  c.failure = r;
}

function shut(r) {
  r.open = false;
  flying.delete(r);
}

/** Breaks the connection of a request. */
function cut(r, message) {
  if (!r.open) return;
  shut(r);
  r.reject(Object.assign(new TypeError("fetch failed"), { cause: new Error(message) }));
  failed(r);
}

/** Delivers an answer, unless its caller has hung up. */
function deliver(r, time, status, document, headers = {}, broken = false) {
  at(time, () => {
    if (!r.open) return;
    shut(r);
    const kind = headers["Content-Type"] ?? (status >= 400 ? "application/problem+json" : "application/json");
    const get = (name) => ({ "Content-Type": kind, ...headers })[name] ?? null;
    const body = new TextEncoder().encode(typeof document === "string" ? document : JSON.stringify(document));
    const arrayBuffer = async () => { if (broken) throw new TypeError("terminated"); return body.buffer; };
    r.resolve({ status, headers: { get }, arrayBuffer });
    if (broken || headers.foreign || status >= 500) failed(r);
    else answered(r, status, document, headers);
  }, "answer");
}
const problem = (status, code) => ({ type: `urn:signalbox:error:${code}`, title: "", status, code, detail: `scripted ${code}` });

const grant = { state: "acquired", token: 1, count: "max", waited_ms: 0, expires_in_ms: 3000 };
const alive = { state: "alive", preempt: false, waited_ms: 0, expires_in_ms: 3000 };
const typed = (kind) => ({ "Content-Type": kind });
/** Answers that are not a gateway's, or are one's by half. */
const hostile = [
  [200, "<html>Please log in</html>", typed("text/html; charset=utf-8")], [302, "", { Location: "/login", ...typed("") }],
  [200, { status: "ok" }], [200, { token: 1 }], [200, { state: "acquired", token: 1, count: "max" }], [200, "null"], [200, '{"sta'],
  [200, { ...grant, expires_in_ms: 1e300 }], [200, { ...grant, expires_in_ms: 2 ** 40 }], [200, { ...grant, waited_ms: -5 }],
  [200, { ...grant, token: 0.5 }], [200, JSON.stringify(grant).replace('"token":1', '"token":1e999')],
  [200, grant, typed("text/plain")], [200, grant, typed("text/json")], [202, grant],
  [409, problem(409, "not_acquired"), typed("application/json")],
  [200, { ...alive, expires_in_ms: 2 ** 40 }], [200, { ...alive, waited_ms: 2 ** 40 }], [200, { ...alive, waited_ms: 1e15 }],
  [200, { ...alive, waited_ms: "0" }], [200, JSON.stringify(alive).replace('"waited_ms":0', '"waited_ms":NaN')],
  [404, { error: "no such route" }, typed("application/json")], [410, { code: "session_expired" }, typed("application/json")],
  [403, "blocked", typed("text/plain")], [500, "{not json", typed("application/problem+json")], [502, "<html>", typed("text/html")],
  [504, "", typed("")], [204, "", typed("")], [304, "", typed("")],
];

/** A gateway behind its part of the network, which is of one mode at a time. */
class Gateway {
  mode = "good";
  held = []; // while it stands still
  take(r) {
    const { mode } = this;
    const [soon, back] = mode === "slow" ? [between(100, 1500), between(100, 1500)] : [between(0, 20), between(0, 20)];
    r.reply = (status, document, headers) => {
      if (this.mode !== "lossy") return deliver(r, real + back, status, document, headers);
      if (random() < 0.5) at(real + back, () => cut(r, "other side closed"), "answer"); // else nothing comes ever
    };
    switch (mode) {
      case "refuses": return at(real + 1, () => cut(r, "connect ECONNREFUSED"), "answer");
      case "stands": return void this.held.push(r);
      case "foreign": {
        const [status, document, headers] = pick(hostile);
        return deliver(r, real + soon, status, document, { ...headers, foreign: true }, random() < 0.1);
      }
      case "busy": {
        const why = problem(503, pick(["unavailable", "closing", "session_moved"]));
        return deliver(r, real + soon, 503, why, { "Retry-After": String(Math.floor(between(0, 6))) });
      }
    }
    at(real + soon, () => serve(r));
  }
  turn(mode) {
    this.mode = mode;
    if (mode !== "stands") for (const r of this.held.splice(0)) at(real + between(0, 50), () => serve(r));
  }
}

// The cluster, as server/httpapi serves it: named sessions, exclusive locks, one configuration.
let gateways, sessions, ended, locks, tokens, config, taken, flying;
const lockOf = (name) => locks.get(name) ?? locks.set(name, { owner: undefined, token: 0, queue: [] }).get(name);

function endSession(s) {
  sessions.delete(s.name);
  ended.add(s.name);
  s.over = true;
  for (const [name] of locks) free(name, s);
}

/** Releases a name, or leaves its queue, and grants it to the next one. */
function free(name, s) {
  const lock = lockOf(name), had = lock.owner === s || lock.queue.includes(s);
  lock.queue = lock.queue.filter((x) => x !== s);
  if (lock.owner === s) { lock.owner = undefined; grantNext(name); }
  for (const end of [...s.waits]) end("gone");
  return had;
}
function grantNext(name) {
  const lock = lockOf(name);
  if (lock.owner || lock.queue.length === 0) return;
  lock.owner = lock.queue.shift();
  lock.token = ++tokens;
  for (const end of [...lock.owner.waits]) end("granted");
}

/** The session lives for its ttl and a second from the answer to its last request on. */
function rest(s) {
  s.calls--;
  const since = s.rests = real;
  at(real + s.ttl + 1000, () => { if (!s.over && s.calls === 0 && s.rests === since) endSession(s); });
}

function serve(r) {
  const name = decodeURIComponent(r.path.replace(/^\/v1\/[a-z]+\/?/, ""));
  if (r.path.startsWith("/v1/config/")) return serveConfig(r);
  if (r.path.startsWith("/v1/limits/")) {
    taken.set(name, (taken.get(name) ?? 0) + 1);
    return r.reply(200, { admitted: true, units: 1, waited_ms: 0 });
  }
  const began = real, ttl = parseInt(r.query.get("ttl"));
  let s = sessions.get(r.session);
  if (!s && (r.method !== "POST" || !ttl || ended.has(r.session))) return r.reply(410, problem(410, "session_expired"));
  const call = r.claim?.call;
  if (!s && call && !["pending", "held"].includes(call.state)) r.claim.late = real - slept; // for nobody
  if (!s) sessions.set(r.session, s = { name: r.session, ttl, calls: 0, waits: new Set(), over: false });
  s.calls++;
  const say = (status, document) => {
    const left = random() < 0.8 ? s.ttl : Math.floor(s.ttl * between(0.4, 1));
    r.reply(status, status < 400 ? { ...document, waited_ms: Math.floor(real - began), expires_in_ms: left } : document);
    rest(s);
  };
  if (r.method === "DELETE" && r.path === "/v1/session") {
    r.claim.late = undefined;
    endSession(s);
    return r.reply(200, { ended: true });
  }
  const lock = lockOf(name);
  if (r.method === "DELETE") {
    const token = r.query.get("token"), mine = token === null || lock.owner === s && lock.token === Number(token);
    return say(200, { released: mine && free(name, s) });
  }
  if (r.path === "/v1/session/keepalive") {
    const held = lockOf(r.query.get("holding")).owner === s;
    return held ? say(200, { state: "alive", preempt: false }) : say(410, problem(410, "lease_lost"));
  }
  const granted = () => say(200, { state: "acquired", token: lock.token, count: "max" });
  if (lock.owner === undefined && lock.queue.length === 0) { lock.owner = s; lock.token = ++tokens; }
  if (lock.owner === s) return granted();
  const wait = parseInt(r.query.get("wait") ?? "0");
  if (wait === 0) {
    say(409, problem(409, "not_acquired"));
    if (s.calls === 0 && s.waits.size === 0) { sessions.delete(s.name); s.over = true; } // a refused acquire starts none
    return;
  }
  if (!lock.queue.includes(s)) lock.queue.push(s);
  const end = (why) => {
    if (!s.waits.delete(end)) return;
    if (why === "granted") return granted();
    if (why === "late") return say(202, { state: "waiting" });
    r.reply(410, problem(410, "session_expired"));
    rest(s);
  };
  s.waits.add(end);
  at(real + wait, () => end("late"));
  // A caller that hangs up has five seconds to come again. Only a network that carries tells of it.
  const gone = () => at(real + between(0, 100), () => {
    if (!s.waits.delete(end)) return;
    rest(s);
    const rests = s.rests;
    at(real + 5000, () => { if (!s.over && s.calls === 0 && s.rests === rests) free(name, s); });
  });
  if (r.open) r.left = gone;
  else gone();
}

function serveConfig(r) {
  const headers = { ...typed("application/octet-stream"), ETag: `${pick(["", "W/"])}"${config.version}${pick(["", "", "-gzip"])}"` };
  const show = (version) => {
    if (r.tag === `"${version}"`) r.reply(304, "", { ETag: headers.ETag });
    else r.reply(200, `value ${version}`, headers);
  };
  const wait = parseInt(r.query.get("wait") ?? "0");
  if (r.tag !== `"${config.version}"` || wait === 0 || config.hasty) return show(config.version);
  const end = () => { if (config.waits.delete(end)) { headers.ETag = `"${config.version}"`; show(config.version); } };
  config.waits.add(end);
  at(real + wait, end);
}

// The model of what a caller may know and must do, by session.
let claims, calls;
function claimOf(session, acquires) {
  const given = claims.get(session);
  if (given && !(acquires && given.call && !["pending", "held"].includes(given.call.state))) return given;
  if (given) claims.set({}, given); // a session that is given serves one call after the other
  return claims.set(session, { sends: [], until: 0, deletes: [] }).get(session);
}

/** Notes a request that is sent. */
function seen(r) {
  if (r.path.startsWith("/v1/config/")) {
    if (config.told === undefined) return;
    check(r.tag === `"${config.told}"`, () => `a watch that was told version ${config.told} knows ${r.tag}`);
    if (config.fresh) config.asks.push(real);
    check(!config.fresh || !(real - config.asks.at(-3) < 990), () => `a watch asks at ${config.asks.slice(-3)}`);
    config.fresh = false;
    return;
  }
  if (!r.session) return;
  const acquires = r.method === "POST" && r.path.startsWith("/v1/locks/"), c = r.claim = claimOf(r.session, acquires);
  if (acquires && !c.call) {
    const call = calls[Number(r.query.get("holder"))];
    if (call.state === "pending" && (call.sessions.size === 0 || call.expired)) c.call = call;
    check(c.call, () => `a session is started that no call needs: ${r.session}`);
    c.call?.sessions.add(r.session);
    if (c.call) { c.call.expired = false; c.call.claim = c; }
  }
  const call = c.call;
  if (!call) return;
  must(call, c.failure?.method !== r.method || c.failure.gateway !== r.gateway,
    () => `the gateway that failed is asked again, and not the other one`);
  c.failure = undefined;
  if (r.method === "DELETE") {
    must(call, call.state !== "held" || call.refused || real > c.until - 3,
      () => `the session of a lease that is held is ended`);
    if (call.state === "pending" && call.claim === c) {
      call.over = real - slept;
      if (!call.expired || call.given) call.state = "refused"; // else it may begin again
    }
    c.deletes.push(r.sentTicks);
    must(call, !r.path.startsWith("/v1/locks/") || Number(r.query.get("token") ?? NaN) === c.token || c.token === undefined,
      () => `released without its token`);
    return;
  }
  must(call, call.state === "pending" && call.claim === c || call.state === "held",
    () => `${r.method} ${r.path} renews what is ${call.state}`);
  const last = c.sends.at(-1), ticks = r.sentTicks;
  if (last !== undefined) must(call, ticks - last >= 10 || call.dozed,
    () => `a request follows the last one after ${ticks - last} ms`);
  if (last !== undefined && call.state === "pending") {
    must(call, ticks - last <= Math.max(call.ttl, 4000),
      () => `a waiter is silent for ${ticks - last} ms, and loses its place`);
  }
  c.sends.push(ticks);
  must(call, !acquires || call.wait === 0 || r.query.has("wait"), () => `it leaves the queue, as it asks without a wait`);
  if (!acquires) {
    must(call, ticks <= c.due + 3, () => `a keep-alive is ${ticks - c.due} ms late`);
    c.due = ticks + call.ttl / 3;
  }
}

/** Notes an answer that its caller has. */
function answered(r, status, document, headers) {
  if (r.path.startsWith("/v1/config/")) [config.told, config.fresh] = [/\d+/.exec(headers.ETag)[0], true];
  const c = r.claim, call = c?.call;
  if (!call) return;
  if (r.method === "DELETE" && (status === 200 || document.code === "session_expired")) c.deleted ??= real - slept;
  if (document.code === "session_expired" || document.code === "lease_lost") {
    if (r.method === "POST" && c === call.claim) call[call.state === "held" ? "refused" : "expired"] = true;
  }
  if (status === 200 && document.state) {
    const told = r.sent + document.waited_ms + document.expires_in_ms;
    if (told > c.until) c.until = told;
    if (document.state !== "acquired") return;
    c.token = document.token;
    c.due = Math.max(r.sentTicks + document.waited_ms + call.ttl / 3, real - slept);
    if (random() < 0.05) call.interrupt();
  }
}

/** Compares what leases say with the model. */
function look() {
  const holders = new Map();
  for (const call of calls) {
    if (call.state !== "held") continue;
    const { until } = call.claim, { lease } = call;
    if (call.listens) { // nobody looks at it: a timer must tell
      must(call, call.signal.aborted || real < until + 4 || real - slept < woke + 1004,
        () => `a lease is not told in time that it is lost`);
      must(call, !call.refused || call.signal.aborted, () => `a lease that a gateway says is lost stays`);
    } else {
      const { held } = lease;
      must(call, !held || real < until, () => `it is held ${real - until} ms beyond its belief`);
      must(call, held || call.refused || real > until - 3, () => `it is lost ${until - real} ms before its belief ends`);
      must(call, !held || !call.refused, () => `a lease that a gateway says is lost stays`);
      must(call, held !== lease.signal.aborted, () => `held and signal differ`);
    }
    if (call.signal.aborted || !call.listens && !lease.held) { call.lostAt(); continue; }
    if (real >= until || call.killed) continue;
    check(!holders.has(call.name), () => `two hold ${call.name}: ${call.text}, ${holders.get(call.name)?.text}`);
    holders.set(call.name, call);
    check(lease.token === call.claim.token, () => `token ${lease.token} is not that of the answer`);
  }
  const foreground = calls.some((c) => c.busy) || watching > 0;
  check(foreground || !queue.some((e) => e.ref), () => "a timer keeps the program alive, and no call is under way");
}

let watching;
const pause = (ms) => new Promise((done) => { at(real + ms, done, "timer").ref = false; });

/** One of a program's tasks: it locks, works, and releases, or gives up. */
async function task(connection, given, end) {
  while (real < end) {
    const ttl = given ? 6000 : pick([3000, 6000, 30000]), wait = pick([0, 2000, 20000]);
    const name = given ? "given" : pick(["a", "b/c"]), stop = new AbortController();
    const call = {
      name, ttl, wait, given, sessions: new Set(), state: "pending", busy: true, began: real - slept, from: real,
      text: `${name} ttl ${ttl} wait ${wait} from ${real.toFixed(0)}`,
    };
    calls.push(call);
    call.listens = random() < 0.5;
    const giveUp = random() < 0.3 ? between(0, wait + 500) : Infinity;
    let abandoned;
    const leave = () => {
      if (call.state !== "pending") return;
      call.state = "given up";
      abandoned = call.over = real - slept;
      stop.abort(new Error("given up"));
    };
    if (giveUp < Infinity) at(real + giveUp, leave, "answer");
    call.interrupt = async () => { // while the answer is read
      for (let i = Math.floor(random() * 12); i > 0; i--) await undefined;
      leave();
    };
    try {
      call.lease = await connection.lock(name, { ttl, wait, holder: String(calls.indexOf(call)), signal: stop.signal });
      if (abandoned === real - slept) [call.state, call.over, abandoned] = ["pending", undefined, undefined]; // both came at once
      must(call, call.state === "pending", () => `a lease is given to a call that was given up`);
      Object.assign(call, { state: "held", over: undefined, signal: call.lease.signal });
      must(call, call.claim.until > real - 3, () => `a lease is given that is over`);
      must(call, call.claim.token === call.lease.token, () => `a lease that no answer gave`);
    } catch (e) {
      const late = real - slept - call.began, lasted = real - call.from; // without and with what it slept
      check(e instanceof SignalboxError || abandoned !== undefined && e.message === "given up",
        () => `${call.text} throws ${e.stack}`);
      check(abandoned === undefined || real - slept - abandoned < 1000,
        () => `a call that was given up ends after ${real - slept - abandoned} ms`);
      must(call, late <= Math.max(wait + 3400, 10000) + 600, () => `it takes ${late} ms`);
      if (call.expired && call.over !== undefined) call.state = "refused";
      check(call.state !== "pending", () => `nothing is given back before ${call.text} throws ${e.stack}`);
      check(!(e instanceof Unavailable) || lasted >= Math.max(wait, 10000) - 5500,
        () => `it gives up after ${late} ms: ${call.text} ${e.stack}`);
      must(call, real - slept - call.over <= 502, () => `it ends ${real - slept - call.over} ms after it is given back`);
      must(call, e.name !== "SessionExpired" || given || lasted >= Math.max(wait, 6000), () => `it ends with its session`);
      must(call, !(e instanceof NotAcquired) || wait === 0 || lasted >= wait - 1, () => `refused before its wait was over`);
    }
    call.busy = false;
    if (call.state === "held") {
      call.lostAt = () => { call.state = "lost"; call.over = real - slept; };
      const until = Math.min(real + between(0, 3 * ttl), end + 10_000);
      while (real < until && call.state === "held") { await pause(between(10, 500)); look(); }
      if (call.state === "held") { call.state = "released"; call.over = real - slept; }
      call.busy = true;
      const began = real - slept;
      const release = call.lease.release().catch((e) => {
        check(e instanceof Unavailable, () => `release throws ${e.stack}`);
      }).finally(() => {
        call.busy = false;
        check(real - slept - began <= 10002, () => `a release takes ${real - slept - began} ms`);
      });
      if (given || random() < 0.7) await release;
      while (given && connection.claims.size > 0) await pause(500);
    } else if (given) {
      while (connection.claims.size > 0) await pause(500);
    }
    await pause(between(0, 2000));
  }
}

/** Follows the configuration, whatever is between. */
async function follow(connection, end) {
  const stop = new AbortController();
  at(end, () => stop.abort(new Error("enough")), "answer");
  let last = 0;
  try {
    for await (const value of connection.config("flags").watch({ signal: stop.signal })) {
      check(value.version !== last && Number.isSafeInteger(value.version), () => `version ${value.version} follows ${last}`);
      last = value.version;
    }
  } catch (e) {
    check(e.message === "enough", () => `a watch ends: ${e.stack}`);
  }
  check(last === config.version, () => `a watch has seen version ${last}, and not ${config.version}`);
  watching--;
}

async function run(seed) {
  [random, real, slept, asleep, woke, offset, queue, order, faults] = [seeded(seed), 0, 0, 0, -Infinity, 0, [], 0, []];
  [sessions, ended, locks, tokens, taken] = [new Map(), new Set(), new Map(), 0, new Map()];
  [claims, calls, flying, watching] = [new Map(), [], new Set(), seed % 2];
  config = { version: 1, waits: new Set(), asks: [], hasty: random() < 0.3 };
  gateways = [new Gateway(), new Gateway()];
  const addresses = ["http://g0", "http://g1/behind/a/proxy/"], end = 150_000, sleeps = random() < 0.3;
  const all = [connect(addresses), connect(addresses), connect(addresses, { session: "a-given-session" })];
  const tasks = [task(all[0], false, end), task(all[0], false, end), task(all[1], false, end), task(all[2], true, end)];
  const followed = watching > 0 && follow(all[1], end + 70_000);
  for (const [i, g] of gateways.entries()) {
    const turn = () => {
      g.turn(real > end ? "good" : pick(["good", "good", "good", "slow", "refuses", "stands", "lossy", "foreign", "busy"]));
      if (real <= end) at(real + between(500, i === 0 ? 12_000 : 25_000), turn);
    };
    turn();
  }
  const change = () => {
    config.version++;
    for (const wait of [...config.waits]) wait();
    if (real < end) at(real + between(10, 20_000), change);
  };
  at(3000, change);
  const kill = () => {
    const s = pick([...sessions.values()]), call = claims.get(s?.name)?.call;
    if (s) endSession(s);
    if (call) call.killed = true;
    if (real < end) at(real + between(5000, 60_000), kill);
  };
  at(20_000, kill);
  const sleep = () => {
    if (real > end) return;
    const ms = between(1000, 40_000), wakes = real + ms;
    for (const e of queue) if (e.kind === "timer") e.time += ms; else if (e.kind === "answer" && e.time < wakes) e.time = wakes;
    for (const c of calls) c.dozed ||= c.over === undefined || real - slept < c.over + c.ttl;
    at(wakes, () => { slept += ms; woke = real - slept; look(); }).order = -1;
    asleep = wakes;
    at(wakes + between(20_000, 60_000), sleep);
  };
  if (sleeps) at(between(5000, 30_000), sleep);
  else for (let i = 0; i < 3; i++) at(between(0, end), () => { offset -= between(0, 100_000); }); // somebody sets the clock back
  let takes = 0;
  const take = () => {
    watching++;
    const taking = all[0].limit(`t${takes++}`).take(1);
    taking.catch((e) => check(e instanceof Unavailable, () => `take throws ${e.stack}`)).finally(() => watching--);
    if (real < end) at(real + between(1000, 8000), take, "answer");
  };
  at(500, take, "answer");

  const over = end + 80_000;
  while (queue.length > 0 && faults.length === 0) {
    let next = queue[0];
    for (const e of queue) if (e.time < next.time || e.time === next.time && e.order < next.order) next = e;
    if (next.time > over) break;
    queue.splice(queue.indexOf(next), 1);
    real = Math.max(real, next.time);
    next.f();
    await new Promise((done) => setImmediate(done));
    if (real >= asleep) look();
  }
  for (const c of claims.values()) {
    if (!c.call || c.call.over === undefined || c.call.dozed) continue;
    if (c.deleted <= c.late && c.late < c.call.over + 2 * c.call.ttl / 3 - 1500) {
      must(c.call, c.deletes.some((t) => t >= c.late && t <= c.late + c.call.ttl / 3 + 2600),
        () => `what came late is not given back`);
    }
    let last = c.call.claim === c ? c.call.over : c.deletes[0] ?? Infinity;
    const close = Math.min(c.deleted ?? Infinity, last + c.call.ttl);
    for (const [i, t] of [...c.deletes.filter((t) => t >= last && t < close), close].entries()) {
      must(c.call, t - last <= (i === 0 ? 3 : 2600), () => `what is ${c.call.state} is not given back for ${t - last} ms`);
      last = t;
    }
  }
  for (const [name, n] of taken) check(n === 1, () => `units of ${name} are taken ${n} times`);
  check(faults.length > 0 || sessions.size === 0, () => `sessions are left: ${[...sessions.keys()]}`);
  if (faults.length === 0) {
    await Promise.all([...tasks, followed, ...all.map((c) => c.close())]);
    check(flying.size === 0, () => `requests are left: ${[...flying].map((r) => r.path)}`);
  }
  return { faults, leases: tokens, calls: calls.length, lost: calls.filter((c) => c.state === "lost").length };
}

process.on("unhandledRejection", (e) => faults.push(`unhandled: ${e?.stack}`));
let leases = 0, lost = 0, count = 0;
for (let seed = first; seed < first + many; seed++) {
  const result = await run(seed);
  if (result.faults.length > 0) {
    console.log(`seed ${seed}: ${result.faults[0]}\nalone: node server/httpapi/testdata/virtual.mjs client/js ${seed} 1`);
    process.exit(1);
  }
  leases += result.leases; lost += result.lost; count += result.calls;
}
console.log(`${many} seeds: ${count} calls, ${leases} grants, ${lost} leases lost; as the model says`);
