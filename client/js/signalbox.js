/// <reference lib="esnext.disposable" preserve="true" />
/**
 * Locks of signalbox over HTTP, for programs whose calls may cost a hop. One file, no dependency.
 *
 *   await using lease = await connect("http://127.0.0.1:7074").lock("backup", { ttl: 30_000, wait: 60_000 });
 *   await work(lease.token, lease.signal);
 *
 * A lock cannot stop a program that does not look: give `lease.signal` to what you await, look at
 * `lease.held` before each step, and send `lease.token` with each write to what the lock protects.
 * Times are in milliseconds. Each lease has a session of its own, so calls through one connection
 * exclude each other as processes do; one that locks what its program holds waits for that, too.
 * A program that blocks the event loop for longer than the ttl loses its locks; `held` says so.
 *
 * Only calls under way keep a program alive. A program that ends by process.exit, by a signal or by
 * a main that forgot a release leaves what it holds until the ttl is over. For SIGTERM:
 *   process.once("SIGTERM", () => connection.close().finally(() => process.exit(143))); see server/httpapi/README.md
 */
/** The gateway's error: its sentence, `code`, `status`, the whole `document`, and of it `loss`: why something was lost. */
export class SignalboxError extends Error {
    code;
    status;
    document;
    constructor(message, code = "", status = 0, document = {}, cause) {
        super(message, cause === undefined ? {} : { cause });
        [this.name, this.code, this.status, this.document] = [new.target.name, code, status, document];
    }
    get loss() { return this.document.loss; }
}
/** Somebody else holds it: `holders`. */
export class NotAcquired extends SignalboxError {
    get holders() { return Array.isArray(this.document.holders) ? this.document.holders : []; }
}
/** A newer request about the name took the place of this one. */ export class Aborted extends SignalboxError {
}
/** The session has ended, with what it held. */ export class SessionExpired extends SignalboxError {
}
/** The session does not hold the name any more. */ export class LeaseLost extends SignalboxError {
}
/** The configuration has another version; after a lost answer perhaps by this call. */ export class VersionMismatch extends SignalboxError {
}
/** There is no such configuration, limit or node. */ export class NotFound extends SignalboxError {
}
/** The token is missing or wrong. */ export class Unauthenticated extends SignalboxError {
}
/** The token does not have the right. */ export class Forbidden extends SignalboxError {
}
/** The rate limit has no units now. */ export class Limited extends SignalboxError {
}
/** No gateway answered in time. A change may have taken effect, and can be repeated. */ export class Unavailable extends SignalboxError {
}
const byCode = new Map(Object.entries({
    not_acquired: NotAcquired, aborted: Aborted, session_expired: SessionExpired, lease_lost: LeaseLost, version_mismatch: VersionMismatch,
    not_found: NotFound, unauthenticated: Unauthenticated, forbidden: Forbidden, browser: Forbidden, limited: Limited,
}));
const moment = () => ({ ticks: performance.now(), wall: Date.now() });
const since = (m) => Math.max(performance.now() - m.ticks, Date.now() - m.wall);
const left = (b) => b.waited + b.ms - since(b.sent);
/** A timer. In the background it does not keep the program alive. */
function after(ms, background, f) {
    const timer = setTimeout(f, Math.max(0, Math.min(ms, 2 ** 31 - 1)));
    if (background && typeof timer === "number")
        globalThis.Deno?.unrefTimer(timer);
    else if (background)
        timer.unref?.();
    return timer;
}
const listeners = new WeakMap();
/** Has f called when one of the signals is aborted. Each has one listener: Node warns of eleven. */
function onAbort(signals, f) {
    const sets = signals.map((s) => {
        const had = listeners.get(s), all = had ?? new Set();
        if (!had)
            s.addEventListener("abort", () => all.forEach((f) => f()), { once: true });
        listeners.set(s, all.add(f));
        return all;
    });
    return () => sets.forEach((all) => all.delete(f));
}
/** Waits; an abort ends it early, and is seen by who looks at the signal. */
const sleep = (ms, signals, background = false) => new Promise((done) => {
    const timer = after(ms, background, end), forget = onAbort(signals, end);
    if (signals.some((s) => s.aborted))
        end();
    function end() { clearTimeout(timer); forget(); done(); }
});
/** Waits for a request that goes on without it, for at most ms. */
function atMost(ms, work, what, ...asked) {
    return new Promise((done, fail) => {
        const timer = after(ms, false, () => fail(new Unavailable(`no gateway has answered ${what} within ${ms} ms; it goes on until the ttl is over`, "", 0, {}, asked.find((a) => a.failure)?.failure)));
        work.then(() => done(), fail).finally(() => clearTimeout(timer));
    });
}
/** Checks a time that a caller gives: nothing here counts with NaN. */
function time(what, ms) {
    if (typeof ms === "number" && ms >= 0)
        return ms;
    throw new RangeError(`${what} is ${ms}; give it as milliseconds, such as 30000`);
}
const duration = (ms) => ms > 0 ? `${Math.ceil(ms)}ms` : "";
const isWhole = (x, most = Number.MAX_SAFE_INTEGER) => Number.isSafeInteger(x) && x >= 0 && x <= most;
const isToken = (x) => isWhole(x) && x > 0;
const isCount = (x) => isToken(x) || typeof x === "string" && /^(max|\d+)$/.test(x);
const isTexts = (x) => Array.isArray(x) && x.every((s) => typeof s === "string");
const show = (name) => typeof name === "string" ? name : new TextDecoder().decode(name);
const percent = (x) => typeof x !== "object" ? encodeURIComponent(x)
    : Array.from(x, (b) => `%${b.toString(16).padStart(2, "0")}`).join("");
/** The path and query of a name; in the query if something between could take it for another path. */
function pathOf(kind, name, query = {}) {
    if (typeof name === "string" && !/[\0-\x1f\x7f\\]/.test(name) && name.split("/").every((s) => !/^\.{0,2}$/.test(s))) {
        return [`/v1/${kind}/${name.split("/").map(percent).join("/")}`, query];
    }
    const bytes = typeof name === "string" ? new TextEncoder().encode(name) : name, name64 = btoa(String.fromCharCode(...bytes));
    return [`/v1/${kind}/`, { ...query, name64: name64.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "") }];
}
/** What an answer in a state says of the session. */
function beliefOf({ status, document, sent }, is, ttl) {
    const { state, waited_ms: waited, expires_in_ms: ms, preempt } = document, passed = since(sent);
    if (status !== 200 || state !== is || !isWhole(waited, passed + 1000) || !isWhole(ms, ttl))
        return undefined;
    return { sent, waited: Math.min(waited, passed), ms, preempt: preempt === true };
}
/** Units that are held. `signal` is aborted, with the cause, before anybody else is granted them. */
export class Lease {
    name;
    token;
    count;
    slots;
    /** A waiter wants it: finish and release. */
    preempted;
    claim;
    belief;
    lost = new AbortController();
    over = new AbortController(); // aborted: it is lost or released
    timer; // ends belief, whatever requests do; it looks soon after a sleep
    asked = { background: true };
    /** @internal */
    constructor(claim, d, belief) {
        [this.claim, this.belief, this.name, this.preempted] = [claim, belief, claim.name, belief.preempt];
        [this.token, this.count, this.slots] = [d.token, d.count, (d.slots ?? [])];
        this.schedule();
        void this.keep();
    }
    /** Whether it may be relied on now. It looks at the clock. */
    get held() {
        const ends = !this.over.signal.aborted && left(this.belief) <= 0;
        if (ends)
            this.lose(new LeaseLost("it was not renewed in time; acquire it again", "lease_lost", 0, { loss: lossOf(this.asked, this.belief.sent, this.claim.ttl) }, this.asked.failure));
        return !this.over.signal.aborted;
    }
    get signal() { void this.held; return this.lost.signal; }
    /** For how long it may be relied on without another renewal. */
    get remaining() { return this.held ? left(this.belief) : 0; }
    /**
     * Releases it, and returns when a gateway has answered. Throws Unavailable if none did within
     * the connection's timeout; then it goes on trying in the background until the ttl is over.
     */
    async release() {
        await atMost(this.claim.connection.timeout, this.claim.end(), `the release of ${show(this.name)}`, this.claim.asked);
    }
    async [Symbol.asyncDispose]() { await this.release(); }
    /** @internal Stops renewing. */
    stop() { clearTimeout(this.timer); this.over.abort(); }
    lose(cause) {
        void this.claim.end(); // at first, so that what listens finds it lost; what is not believed is given back
        this.lost.abort(cause);
    }
    schedule() {
        this.timer = after(Math.min(left(this.belief) + 1, 1000), true, () => { if (this.held)
            this.schedule(); });
    }
    /** Renews it each third of its ttl. A failure is no loss: what was said before stands. */
    async keep() {
        const { connection, session, ttl } = this.claim, { asked, over: { signal } } = this;
        // The next attempt is sent within a third of the ttl, whatever happens to one.
        Object.assign(asked, { query: { holding: this.name }, session, signal, attempt: Math.max(ttl / 6, Math.min(1000, ttl / 4)), pause: ttl / 12 });
        const due = ({ sent, waited, ms }) => waited + Math.max(ttl / 24, ms / 3) - since(sent); // ms is mostly the ttl
        for (let pause = due(this.belief);;) {
            await sleep(pause, [signal], true);
            if (!this.held)
                return;
            asked.within = left(this.belief);
            try {
                const belief = await connection.ask("POST", "/v1/session/keepalive", (a) => beliefOf(a, "alive", ttl), asked);
                if (left(belief) > left(this.belief))
                    this.belief = belief;
                this.preempted ||= belief.preempt;
                pause = due(belief);
                delete asked.failure;
            }
            catch (e) {
                if (signal.aborted)
                    return;
                if (e instanceof LeaseLost || e instanceof SessionExpired)
                    return this.lose(e);
                if (e instanceof SignalboxError)
                    asked.failure = e;
                pause = ttl / 12;
            }
        }
    }
}
const causes = { 0: "unreachable", 401: "refused", 403: "refused", 429: "overloaded" };
/** Why a lease was not renewed, if the last failure came in time: else it is not known whether the program ran. */
const lossOf = ({ failure: e, ran }, sent, ttl) => ({ since_ms: Math.round(since(sent)), stood_ms: 0, advice: e?.loss?.advice ?? "",
    cause: ran && since(ran) < ttl / 3 + 500 && e && (e.status || e instanceof Unavailable) && causes[e.status] || "unknown", steps: e ? [e.message] : [] });
const givenSessions = new Map(); // those that callers gave and that are in use
/** One lease's session, from before its first request until nothing of it is left. */
class Claim {
    connection;
    name;
    ttl;
    session;
    given;
    asked = { background: true };
    lease;
    token;
    unseen = true; // an acquire may still arrive, and start the session
    ending;
    constructor(connection, name, ttl, given) {
        [this.connection, this.name, this.ttl, this.given, this.session] = [connection, name, ttl, given, given ?? crypto.randomUUID()];
        connection.claims.add(this);
        if (given !== undefined)
            givenSessions.set(given, this);
    }
    /** Gives back what it has and may get: the first answer settles it, and it goes on until the ttl. */
    end() {
        this.lease?.stop();
        this.ending ??= new Promise((answered, fail) => {
            this.giveBack(answered).catch(fail).finally(() => this.connection.claims.delete(this) && givenSessions.delete(this.given));
        });
        this.ending.catch(() => undefined);
        return this.ending;
    }
    /** Ends the session, so that its name is used up; of one that the caller gave, the grant alone. */
    async giveBack(answered) {
        const { asked, given, ttl, connection } = this, began = moment();
        const [path, query] = given === undefined ? ["/v1/session", {}] : pathOf("locks", this.name, { token: this.token });
        Object.assign(asked, { session: this.session, query, attempt: 1000, pause: Math.min(1000, ttl / 3) });
        const accept = ({ status, code, document: { ended, released } }) => {
            const done = code !== "session_expired" && (given === undefined ? ended : released);
            return (status === 200 || code) && typeof done === "boolean" ? done : undefined;
        };
        for (let pause = 500;; pause = Math.min(2 * pause, ttl / 3)) {
            asked.within = ttl + 1000 - since(began);
            const done = await connection.ask("DELETE", path, accept, asked);
            answered();
            if (done || !this.unseen || since(began) + pause >= ttl)
                return;
            await sleep(pause, [], true); // what was sent before may arrive behind this
        }
    }
}
/** Several gateways of a cluster. Close it, or use it by `await using`. */
export class Connection {
    /** @internal */ claims = new Set();
    /** @internal */ timeout;
    closing = new AbortController();
    options;
    addresses;
    at;
    /** @internal */
    constructor(addresses, options) {
        this.options = options;
        if (addresses.length === 0)
            throw new TypeError("no address is given; give one such as http://127.0.0.1:7074");
        this.addresses = addresses.map((a) => {
            if (/^https?:\/\/[^/?#@]+(\/[^?#]*)?$/i.test(a))
                return new URL(a).href.replace(/\/$/, "");
            throw new TypeError(`"${a}" is not the address of a gateway; write it as ${/^[^/]+$/.test(a) ? `http://${a}` : "http://127.0.0.1:7074"}`);
        });
        this.at = Math.floor(Math.random() * addresses.length);
        this.timeout = time("timeout", options.timeout ?? 10_000);
    }
    /** @internal Sends a request until it is decided, to one gateway after the other. */
    async ask(method, path, accept, a = {}) {
        const began = moment(), wait = a.wait ?? 0, within = a.within ?? wait + this.timeout, signals = this.stops(a);
        for (let tries = 1, at = this.at;; tries++) {
            for (const s of signals)
                s.throwIfAborted();
            const address = this.addresses[at];
            let retryAfter = 0, sent = true;
            try {
                const limit = Math.max(1, Math.min(within - since(began), wait + (a.attempt ?? this.timeout / 3)));
                const r = await this.attempt(method, address + path, a, signals, limit), { status, code } = r, accepted = accept(r);
                if (accepted !== undefined)
                    return accepted;
                if (code && status < 500)
                    throw new (byCode.get(code) ?? SignalboxError)(`${r.document.detail}`, code, status, r.document);
                const why = code ? `${r.document.detail}` : `${address} answered ${status} ${r.kind}, which no gateway does; check the address`;
                a.failure = new Unavailable(why, code, status, r.document);
                [retryAfter, sent] = [r.retryAfter, status !== 503 || !code];
            }
            catch (e) {
                for (const s of signals)
                    s.throwIfAborted();
                if (e instanceof SignalboxError)
                    throw e;
                const { code, cause, message } = e;
                const why = [cause?.message || cause?.code, message, code].filter(Boolean).join(", ");
                a.failure = new Unavailable(`${address} does not answer: ${why}`, "", 0, {}, e);
                sent = !/refused/i.test(why);
            }
            this.at = at = (at + 1) % this.addresses.length;
            const longest = tries % this.addresses.length === 0 ? retryAfter : 0; // all were asked
            const pause = Math.min(Math.max(longest, Math.min(20 * 2 ** tries, 1000) * (0.5 + Math.random())), a.pause ?? 5000);
            if (a.once && sent || since(began) + pause >= within)
                throw a.failure;
            await sleep(pause, signals, a.background);
        }
    }
    /** What ends a request or a pause early. */
    stops(a) { return [...(a.background ? [] : [this.closing.signal]), ...(a.signal ? [a.signal] : [])]; }
    async attempt(method, url, a, signals, limit) {
        const headers = { ...a.headers }, query = { node: this.options.node ?? "/default", ...a.query };
        const params = Object.entries(query).flatMap(([key, v]) => (Array.isArray(v) ? v : [v ?? ""]).map((x) => [key, percent(x)]));
        if (this.options.token)
            headers["Authorization"] = `Bearer ${this.options.token}`;
        if (a.session)
            headers["Signalbox-Session"] = a.session;
        const stop = new AbortController(), forget = onAbort(signals, () => stop.abort());
        const timer = after(limit, a.background === true, () => stop.abort(new Error(`there is no answer after ${Math.round(limit)} ms`)));
        const sent = moment(); // before it is sent
        try {
            const r = await fetch(`${url}?${params.filter(([, x]) => x).map((p) => p.join("=")).join("&")}`, {
                method, headers, redirect: "manual", signal: stop.signal, ...(a.body?.length ? { body: a.body } : {}),
            });
            const body = new Uint8Array(await r.arrayBuffer()), head = (name) => r.headers.get(name) ?? "";
            const kind = head("Content-Type").split(";")[0].trim().toLowerCase();
            const ours = body.length > 0 && kind === (r.status < 400 ? "application/json" : "application/problem+json");
            const json = ours ? JSON.parse(new TextDecoder().decode(body)) : undefined;
            const document = typeof json === "object" && json !== null ? json : {}, { code, detail } = document;
            const problem = r.status >= 400 && typeof code === "string" && typeof detail === "string";
            const [, tag] = /^(?:W\/)?"([!#-~]+?)(?:-(?:gzip|br|deflate|zstd))?"$/.exec(head("ETag")) ?? []; // proxies change it so
            const etag = tag ? `"${tag}"` : "", retryAfter = 1000 * Number(head("Retry-After")) || 0;
            return { status: r.status, kind, code: problem ? code : "", etag, body, document, sent, retryAfter };
        }
        finally {
            a.ran = since(sent) < limit + 500 ? moment() : undefined;
            clearTimeout(timer);
            forget();
        }
    }
    /** Acquires a lock. Throws NotAcquired after `wait`. */
    lock(name, o = {}) { return this.acquire(name, { mode: o.shared ? "shared" : "exclusive" }, o); }
    /** Acquires units of a semaphore, which is made with `limit` if there is none. */
    semaphore(name, o = {}) {
        return this.acquire(name, { count: o.count ?? 1, limit: o.limit, key: o.key, priority: o.priority, label: o.labels, slot: o.slots }, o);
    }
    async acquire(name, what, o) {
        const ttl = time("ttl", o.ttl ?? 30_000), wait = time("wait", o.wait ?? 0), began = moment();
        const { signal, holder } = o, stops = this.stops({ signal }), given = this.options.session, hold = duration(time("hold", o.hold ?? 0));
        const [path, query] = pathOf("locks", name, { ...what, ttl: `${ttl}ms`, holder, hold });
        for (const s of stops)
            s.throwIfAborted();
        const busy = given !== undefined && givenSessions.get(given);
        if (busy)
            throw new SignalboxError(`a given session has one lock at a time, and it has ${show(busy.name)}; release that, or give another one`);
        const accept = (a) => {
            const { state, token, count, slots = [] } = a.document, belief = beliefOf(a, "acquired", ttl);
            if (a.status === 202 && state === "waiting")
                return [a.document];
            return belief && isToken(token) && isCount(count) && isTexts(slots) ? [a.document, belief] : undefined;
        };
        // If a gateway stands still, the request is sent to another one before the session ends.
        const grace = Math.min(this.timeout / 3, Math.max(ttl / 3, 1000)), whole = Math.max(wait + grace, this.timeout);
        let claim = new Claim(this, name, ttl, given);
        for (;;) {
            const part = wait > 0 ? Math.max(1, Math.min(wait - since(began), 15_000, ttl / 3)) : 0, sent = moment();
            const asked = {
                query: { ...query, wait: duration(part) }, body: o.data, session: claim.session, signal, wait: part,
                attempt: grace, within: whole - since(began), pause: Math.min(5000, ttl / 3),
            };
            try {
                const [document, belief] = await this.ask("POST", path, accept, asked);
                [claim.unseen, claim.token] = [false, belief && document.token];
                for (const s of stops)
                    s.throwIfAborted();
                if (belief && left(belief) > 0)
                    return claim.lease = new Lease(claim, document, belief);
                const late = !belief && since(began) >= wait;
                if (late)
                    throw new NotAcquired(`${show(name)} is held by others, after ${wait} ms`, "not_acquired", 409, document);
            }
            catch (e) {
                const stopped = stops.some((s) => s.aborted), own = given === undefined && !stopped && since(began) < whole - grace;
                if (!own || !(e instanceof Aborted || e instanceof LeaseLost)) { // else a late copy of a request was in the way
                    if (!stopped && !asked.failure)
                        claim.unseen = false; // it was sent once, and refused
                    const gone = claim.end();
                    if (!own || !(e instanceof SessionExpired)) { // else it ended in an outage
                        await atMost(500, gone, "").catch(() => undefined);
                        throw e;
                    }
                    claim = new Claim(this, name, ttl, given);
                }
            }
            await sleep(Math.min(Math.max(part, 100), 1000) - since(sent), stops);
        }
    }
    /** Who holds a lock, and who waits for it; with the name of a session that waits, why it does. */
    describe(name, session = "") {
        const [path, query] = pathOf("locks", name);
        const accept = (a) => a.status === 200 && typeof a.document.exists === "boolean" ? a.document : undefined;
        return this.ask("GET", path, accept, { query, session });
    }
    /** Why this connection waits for a name, in sentences; empty: it does not. */
    async why(name) {
        const waits = [...this.claims].find((c) => !c.lease && percent(c.name) === percent(name));
        if (!waits)
            return [];
        const { why } = await this.describe(name, waits.session).catch((e) => { if (e instanceof SessionExpired)
            return {}; throw e; });
        return isTexts(why) ? why : [];
    }
    config(name) { return new Config(this, ...pathOf("config", name)); }
    service(name, zone = "") { return new Service(this, ...pathOf("services", name, { zone })); }
    limit(name) { return new Limit(this, ...pathOf("limits", name)); }
    /** @internal Yields each change; null: there is nothing. An outage does not end it. */
    async *watch(path, query, read, { poll = 15_000, signal }) {
        const wait = time("poll", poll);
        for (let known = "", first = true, quick = false;; first = false) {
            const sent = moment(), a = { query, within: Infinity, signal };
            if (known)
                Object.assign(a, { query: { ...query, wait: duration(wait) }, headers: { "If-None-Match": known }, wait });
            const [tag, value] = await this.ask("GET", path, (r) => {
                if (r.status === 304 && known)
                    return [known];
                const value = read(r);
                return value === undefined || value !== null && !r.etag ? undefined : [value === null ? "" : r.etag, value];
            }, a);
            if (first || tag !== known)
                yield value ?? undefined;
            known = tag;
            const soon = since(sent) < 1000; // one answer may come at once, and no two, whatever is between
            if (soon && (quick || !known))
                await sleep(1000 - since(sent), this.stops({ signal }));
            quick = soon;
        }
    }
    /**
     * Ends all waits, watches and leases. Nothing is held when it returns; it throws Unavailable after
     * two seconds if no gateway has answered by then, and goes on until the ttls are over.
     */
    async close() {
        this.closing.abort(new SignalboxError("the connection is closed; connect again", "closed"));
        const claims = [...this.claims], ends = Promise.all(claims.map((c) => c.end()));
        await atMost(Math.min(2000, this.timeout), ends, "the end of the connection", ...claims.map((c) => c.asked));
    }
    async [Symbol.asyncDispose]() { await this.close(); }
}
/** What a gateway has under a name. */
class Thing {
    connection;
    path;
    query;
    /** @internal */
    constructor(connection, path, query) { [this.connection, this.path, this.query] = [connection, path, query]; }
}
/** A configuration: bytes with a version. */
export class Config extends Thing {
    /** Throws NotFound if it is not set. */
    get() { return this.connection.ask("GET", this.path, this.read, { query: this.query }); }
    /** Sets it, if it has this version (0: there is none yet). Throws VersionMismatch. */
    async set(data, version) {
        if (version !== undefined && !isWhole(version))
            throw new RangeError(`the version is ${version}; give one of get or set, or 0`);
        const headers = version === undefined ? {} : version ? { "If-Match": `"${version}"` } : { "If-None-Match": "*" };
        const accept = ({ status, document: { version } }) => status === 200 && isWhole(version) ? version : undefined;
        return this.connection.ask("PUT", this.path, accept, { query: this.query, body: data, headers });
    }
    /** Yields the value and each other one; undefined: it is not set. */
    watch(o = {}) {
        return this.connection.watch(this.path, this.query, (a) => a.code === "not_found" ? null : this.read(a), o);
    }
    read = ({ status, kind, etag, body: data }) => {
        const version = Number(etag.slice(1, -1) || NaN);
        return status === 200 && kind === "application/octet-stream" && isWhole(version) ? { data, version } : undefined;
    };
}
/** The members of a service. */
export class Service extends Thing {
    /** `endpoints`, of which those that are `used` are to be called, and `live`. */
    members() { return this.connection.ask("GET", this.path, this.read, { query: this.query }); }
    /** Yields the members and each change. */
    watch(o = {}) {
        return this.connection.watch(this.path, this.query, this.read, o); // there is always something
    }
    read = ({ status, document: d }) => status === 200 && Array.isArray(d.endpoints) && typeof d.live === "boolean" && isWhole(d.age_ms) ? d : undefined;
}
/** A rate limit. */
export class Limit extends Thing {
    /**
     * Takes units within `wait`; false: there are none. If an answer is lost it throws Unavailable,
     * as a repeat may take units again; with `retry` it repeats.
     */
    async take(units = 1, o = {}) {
        const wait = time("wait", o.wait ?? 0), query = { ...this.query, units, wait: duration(wait) };
        const accept = (a) => a.code === "limited" ? false : a.status === 200 && a.document.admitted === true || undefined;
        const a = { query, wait, signal: o.signal, once: !o.retry, attempt: this.connection.timeout / (o.retry ? 3 : 1) };
        return this.connection.ask("POST", this.path, accept, a);
    }
}
/**
 * Connects to the gateways at these addresses, by the first request. `token` is the credential;
 * `timeout` bounds a request beside its wait. `session` is a name for the session of the one lease
 * that is had at a time, for a lease that outlives this process: made once and hard to guess.
 */
export function connect(addresses, options = {}) {
    return new Connection(typeof addresses === "string" ? [addresses] : addresses, options);
}
