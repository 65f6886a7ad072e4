/**
 * Locks of signalbox over HTTP, for programs whose calls may cost a hop. One file, no dependency.
 *
 *   await using lease = await connect("http://127.0.0.1:7074").lock("backup", { ttl: 30_000, wait: 60_000 });
 *   await work(lease.token, lease.signal);
 *
 * A lock cannot stop a program that does not look: give `lease.signal` to what you await, look at
 * `lease.held` before each step, and send `lease.token` with each write to what the lock protects. Times are
 * in milliseconds. A connection has one session, which starts with the first lock and ends with the last. A
 * program that blocks the event loop for longer than the ttl loses its locks; `held` and `signal` say so at
 * the next turn, before anything else runs. server/httpapi/README.md has the rules that this file keeps.
 */
/** The gateway's error: its sentence, `code`, `status` and the whole `document`. */
export class SignalboxError extends Error {
    code;
    status;
    document;
    constructor(message, code = "", status = 0, document = {}) {
        super(message);
        this.code = code;
        this.status = status;
        this.document = document;
        this.name = new.target.name;
    }
}
/** Somebody else holds it: `holders`. */
export class NotAcquired extends SignalboxError {
    get holders() { return (this.document.holders ?? []); }
}
/** A newer request about the name took the place of this one. */
export class Aborted extends SignalboxError {
}
/** The session has ended, with what it held. */
export class SessionExpired extends SignalboxError {
}
/** The session does not hold the name any more. */
export class LeaseLost extends SignalboxError {
}
/** The configuration has another version. */
export class VersionMismatch extends SignalboxError {
}
/** There is no such configuration, limit or node. */
export class NotFound extends SignalboxError {
}
/** The token is missing or wrong. */
export class Unauthenticated extends SignalboxError {
}
/** The token does not have the right. */
export class Forbidden extends SignalboxError {
}
/** The rate limit has no units now. */
export class Limited extends SignalboxError {
}
/** No gateway answered in time. A change may have taken effect; it is safe to repeat. */
export class Unavailable extends SignalboxError {
}
const byCode = {
    not_acquired: NotAcquired, aborted: Aborted, session_expired: SessionExpired, lease_lost: LeaseLost, version_mismatch: VersionMismatch,
    not_found: NotFound, unauthenticated: Unauthenticated, forbidden: Forbidden, browser: Forbidden, limited: Limited,
    unavailable: Unavailable, closing: Unavailable, session_moved: Unavailable, outcome_unknown: Unavailable,
};
function errorOf(status, text) {
    let document = {};
    try {
        document = JSON.parse(text);
    }
    catch { /* it is of something between */ }
    const code = String(document.code ?? "");
    return new (byCode[code] ?? SignalboxError)(String(document.detail ?? `the gateway answered ${status}`), code, status, document);
}
let clock = 0, ticks = performance.now(), wall = Date.now();
/** A clock in milliseconds. The platform's stands still while the machine sleeps, which the wall clock tells. */
function now() {
    const t = performance.now(), w = Date.now();
    clock += w - wall > t - ticks + 1000 ? w - wall : t - ticks;
    ticks = t;
    wall = w;
    return clock;
}
/** Waits; an abort ends it early, and is seen by who looks at the signal. */
function sleep(ms, signal) {
    return new Promise((done) => {
        const end = () => { clearTimeout(timer); signal?.removeEventListener("abort", end); done(); };
        const timer = setTimeout(end, ms);
        signal?.addEventListener("abort", end);
        if (signal?.aborted)
            end();
    });
}
const pathOf = (name, kind = "locks") => `/v1/${kind}/${encodeURIComponent(name)}`;
const duration = (ms) => `${Math.max(0, Math.round(ms))}ms`;
/** Units that are held. `signal` is aborted, with the cause, before anybody else is granted them. */
export class Lease {
    connection;
    name;
    until;
    token;
    count;
    slots;
    /** A waiter wants it: finish and release. */
    preempted;
    /** @internal */ released = false;
    abort = new AbortController();
    timer;
    /** @internal */
    constructor(connection, name, document, until) {
        this.connection = connection;
        this.name = name;
        this.until = until;
        this.token = document.token;
        this.count = document.count;
        this.slots = (document.slots ?? []);
        this.preempted = Boolean(document.preempt);
        this.schedule();
    }
    /** Whether it may be relied on now. It looks at the clock. */
    get held() {
        if (now() >= this.until)
            this.lose(new LeaseLost("it was not renewed in time"));
        return !this.released && !this.abort.signal.aborted;
    }
    get signal() { void this.held; return this.abort.signal; }
    /** For how long it may be relied on without another renewal. */
    get remaining() { return this.held ? Math.max(0, this.until - now()) : 0; }
    /** Releases it. If no gateway answers, it goes on trying in the background. */
    async release() { await this.connection.release(this); }
    async [Symbol.asyncDispose]() { await this.release(); }
    /** @internal */
    renew(until) {
        if (this.held && until > this.until) {
            this.until = until;
            this.schedule();
        }
    }
    /** @internal */
    lose(cause) {
        clearTimeout(this.timer);
        if (!this.released && !this.abort.signal.aborted)
            this.abort.abort(cause);
    }
    /** @internal */
    end() { this.released = true; clearTimeout(this.timer); }
    schedule() {
        clearTimeout(this.timer);
        this.timer = setTimeout(() => void this.held, Math.max(0, this.until - now()) + 1);
    }
}
/** A session at any of several gateways. Close it, or use it by `await using`. */
export class Connection {
    options;
    session;
    ttl = 0; // of the session; 0: there is none
    leases = new Map();
    releases = []; // names whose release is to be tried again
    waiting = 0; // acquires under way
    at;
    closed = false;
    timer;
    addresses;
    /** @internal */
    constructor(addresses, options) {
        this.options = options;
        if (addresses.length === 0)
            throw new TypeError("no address is given; give one such as http://127.0.0.1:7074");
        this.addresses = addresses.map((a) => new URL(a).href.replace(/\/$/, ""));
        this.at = Math.floor(Math.random() * addresses.length);
        this.session = options.session ?? crypto.randomUUID();
    }
    get timeout() { return this.options.timeout ?? 10_000; }
    /** @internal Sends a request until it is decided, to one gateway after the other. */
    async ask(method, path, a = {}) {
        const headers = { ...a.headers };
        if (this.options.token)
            headers["Authorization"] = `Bearer ${this.options.token}`;
        if (a.session)
            headers["Signalbox-Session"] = a.session;
        const query = new URLSearchParams([["node", this.options.node ?? "/default"], ...(a.query ?? [])]);
        const wait = a.wait ?? 0;
        const deadline = now() + wait + (a.timeout ?? this.timeout);
        for (let pause = 20;; pause = Math.min(2 * pause, 1000)) {
            a.signal?.throwIfAborted();
            const at = this.at;
            const limit = AbortSignal.timeout(Math.max(50, Math.round(Math.min(deadline - now(), wait + (a.attempt ?? this.timeout / 3)))));
            let failure;
            const sent = now();
            try {
                const r = await fetch(`${this.addresses[at]}${path}?${query}`, {
                    method, headers, redirect: "error", signal: a.signal ? AbortSignal.any([a.signal, limit]) : limit,
                    ...(a.body !== undefined && a.body.length > 0 ? { body: a.body } : {}),
                });
                const body = new Uint8Array(await r.arrayBuffer());
                const text = () => new TextDecoder().decode(body);
                if (r.status < 400) {
                    const json = r.headers.get("Content-Type") === "application/json";
                    const document = (json ? JSON.parse(text()) : {});
                    const until = sent + Number(document.waited_ms) + Number(document.expires_in_ms); // counted from before it was sent
                    return { status: r.status, etag: r.headers.get("ETag") ?? "", body, document, until };
                }
                failure = errorOf(r.status, text());
                if (r.status !== 503 && r.status !== 504)
                    throw failure;
            }
            catch (e) {
                if (e instanceof SignalboxError)
                    throw e;
                a.signal?.throwIfAborted();
                failure = new Unavailable(`${this.addresses[at]} does not answer: ${e instanceof Error ? e.message : String(e)}`);
            }
            if (this.at === at)
                this.at = (at + 1) % this.addresses.length;
            const delay = pause * (0.5 + Math.random());
            if (now() + delay >= deadline)
                throw failure;
            await sleep(delay, a.signal);
        }
    }
    /** Acquires a lock. Throws NotAcquired after `wait`. */
    lock(name, o = {}) {
        return this.acquire(name, [["mode", o.shared ? "shared" : "exclusive"]], o);
    }
    /** Acquires units of a semaphore, which is made with `limit` if there is none. */
    semaphore(name, o = {}) {
        const query = [["count", String(o.count ?? 1)]];
        if (o.limit)
            query.push(["limit", String(o.limit)]);
        if (o.key)
            query.push(["key", o.key]);
        if (o.priority !== undefined)
            query.push(["priority", String(o.priority)]);
        for (const x of o.labels ?? [])
            query.push(["label", x]);
        for (const x of o.slots ?? [])
            query.push(["slot", x]);
        return this.acquire(name, query, o);
    }
    async acquire(name, query, o) {
        this.checkOpen();
        if (this.leases.has(name))
            throw new SignalboxError(`this connection holds ${name} already; release it first, or connect again`);
        const ttl = Math.max(1, Math.round((o.ttl ?? 30_000) / 1000)), wait = o.wait ?? 0, end = now() + wait;
        query.push(["ttl", `${ttl}s`]);
        if (o.holder)
            query.push(["holder", o.holder]);
        if (o.hold)
            query.push(["hold", duration(o.hold)]);
        this.waiting++;
        let lease;
        try {
            while (!lease) {
                this.ttl ||= ttl * 1000;
                const session = this.session, part = Math.max(0, Math.min(end - now(), 10_000));
                const asked = { query: wait > 0 ? [...query, ["wait", duration(part)]] : query, session, wait: part };
                if (o.data)
                    asked.body = o.data;
                if (o.signal)
                    asked.signal = o.signal;
                let answer;
                try {
                    answer = await this.ask("POST", pathOf(name), asked);
                }
                catch (e) {
                    if (!(e instanceof SessionExpired))
                        throw e;
                    this.expire(session, e);
                    if (this.options.session)
                        throw e;
                    continue;
                }
                this.checkOpen();
                o.signal?.throwIfAborted();
                if (answer.status === 200) {
                    if (session !== this.session || now() >= answer.until)
                        continue; // it ended meanwhile
                    lease = new Lease(this, name, answer.document, answer.until);
                    this.leases.set(name, lease);
                    this.schedule();
                }
                else if (now() >= end) {
                    throw new NotAcquired(`${name} is held by others, after ${wait} ms`, "not_acquired", 409, answer.document);
                }
            }
            return lease;
        }
        finally {
            this.waiting--;
            if (!lease)
                await this.giveBack(name);
        }
    }
    /** @internal */
    async release(lease) {
        lease.end();
        if (this.leases.get(lease.name) !== lease)
            return;
        this.leases.delete(lease.name);
        await this.giveBack(lease.name);
    }
    /** Releases a name or leaves its queue, with the session if that has nothing else. */
    async giveBack(name) {
        if (this.leases.size === 0 && this.waiting === 0 && !this.options.session)
            return this.end();
        this.releases.push(name);
        await this.tryReleases();
    }
    async tryReleases() {
        const session = this.session;
        for (const name of this.releases.filter((n) => !this.leases.has(n))) {
            try {
                await this.ask("DELETE", pathOf(name), { session });
            }
            catch (e) {
                if (e instanceof Unavailable)
                    return this.schedule();
            }
            if (session === this.session)
                this.releases = this.releases.filter((n) => n !== name);
        }
    }
    /** Ends the session, so that its name is used up: the next one has another. */
    async end() {
        const session = this.session, began = this.ttl > 0;
        this.ttl = 0;
        this.releases = [];
        clearTimeout(this.timer);
        this.session = this.options.session ?? crypto.randomUUID();
        if (began)
            await this.ask("DELETE", "/v1/session", { session }).catch(() => undefined); // else it ends by itself, after its ttl
    }
    expire(session, cause) {
        if (session !== this.session)
            return;
        for (const lease of this.leases.values())
            lease.lose(cause);
        this.leases.clear();
        this.releases = [];
        this.ttl = 0;
        this.session = this.options.session ?? crypto.randomUUID();
    }
    schedule(after = this.ttl / 3) {
        clearTimeout(this.timer);
        this.timer = setTimeout(() => void this.keep(), after);
    }
    /** Renews each lease. */
    async keep() {
        const session = this.session, third = this.ttl / 3, began = now();
        let all = true;
        for (const lease of [...this.leases.values()]) {
            if (!lease.held) {
                this.leases.delete(lease.name);
                this.releases.push(lease.name);
                continue;
            }
            const timeout = Math.max(200, Math.min(third, lease.remaining));
            try {
                const a = await this.ask("POST", "/v1/session/keepalive", { query: [["holding", lease.name]], session, timeout, attempt: third / 2 });
                lease.renew(a.until);
                lease.preempted ||= Boolean(a.document.preempt);
            }
            catch (e) {
                if (e instanceof SessionExpired)
                    return this.expire(session, e);
                if (e instanceof LeaseLost)
                    lease.lose(e);
                else
                    all = false; // what was said before stands
            }
        }
        await this.tryReleases();
        if (!this.closed && (this.leases.size > 0 || this.releases.length > 0)) {
            this.schedule(all ? Math.max(0, third - (now() - began)) : third / 4);
        }
    }
    /** Who holds a lock, and who waits for it. */
    async describe(name) {
        try {
            return (await this.ask("GET", pathOf(name), this.ttl > 0 ? { session: this.session } : {})).document;
        }
        catch (e) {
            if (!(e instanceof SessionExpired))
                throw e;
            return (await this.ask("GET", pathOf(name))).document;
        }
    }
    /** Why this connection waits for a name, in sentences; empty: it does not. */
    async why(name) { return ((await this.describe(name)).why ?? []); }
    config(name) { return new Config(this, name); }
    service(name, zone = "") { return new Service(this, name, zone); }
    limit(name) { return new Limit(this, name); }
    /** @internal Yields each change; undefined: there is nothing. */
    async *watch(path, query, poll, signal) {
        let etag = "", first = true;
        for (;;) {
            const a = etag ? { query: [...query, ["wait", duration(poll)]], headers: { "If-None-Match": etag }, wait: poll } : { query };
            if (signal)
                a.signal = signal;
            let answer;
            try {
                answer = await this.ask("GET", path, a);
            }
            catch (e) {
                if (!(e instanceof NotFound))
                    throw e;
            }
            if (answer?.status === 304)
                continue;
            if (answer || etag || first)
                yield answer;
            etag = answer?.etag ?? "";
            first = false;
            if (!answer)
                await sleep(1000, signal);
        }
    }
    checkOpen() {
        if (this.closed)
            throw new SignalboxError("the connection is closed; connect again");
    }
    /** Ends the session: nothing is held when it returns, if a gateway answers. */
    async close() {
        if (this.closed)
            return;
        this.closed = true;
        for (const lease of this.leases.values())
            lease.end();
        this.leases.clear();
        await this.end();
    }
    async [Symbol.asyncDispose]() { await this.close(); }
}
/** A configuration: bytes with a version. */
export class Config {
    connection;
    name;
    /** @internal */
    constructor(connection, name) {
        this.connection = connection;
        this.name = name;
    }
    /** Throws NotFound if it is not set. */
    async get() {
        const a = await this.connection.ask("GET", pathOf(this.name, "config"));
        return { data: a.body, version: Number(a.etag.replaceAll('"', "")) };
    }
    /** Sets it, if it has this version (0: there is none yet). Throws VersionMismatch. */
    async set(data, version) {
        const headers = version === undefined ? {} : version ? { "If-Match": `"${version}"` } : { "If-None-Match": "*" };
        return Number((await this.connection.ask("PUT", pathOf(this.name, "config"), { body: data, headers })).document.version);
    }
    /** Yields the value and each other one; undefined: it is not set. */
    async *watch(o = {}) {
        for await (const a of this.connection.watch(pathOf(this.name, "config"), [], o.poll ?? 60_000, o.signal)) {
            yield a && { data: a.body, version: Number(a.etag.replaceAll('"', "")) };
        }
    }
}
/** The members of a service. */
export class Service {
    connection;
    name;
    query;
    /** @internal */
    constructor(connection, name, zone) {
        this.connection = connection;
        this.name = name;
        this.query = zone ? [["zone", zone]] : [];
    }
    /** `endpoints`, of which those that are `used` are to be called, and `live`. */
    async members() {
        return (await this.connection.ask("GET", pathOf(this.name, "services"), { query: this.query })).document;
    }
    /** Yields the members and each change. */
    async *watch(o = {}) {
        for await (const a of this.connection.watch(pathOf(this.name, "services"), this.query, o.poll ?? 60_000, o.signal)) {
            if (a)
                yield a.document;
        }
    }
}
/** A rate limit. */
export class Limit {
    connection;
    name;
    /** @internal */
    constructor(connection, name) {
        this.connection = connection;
        this.name = name;
    }
    /** Takes units within `wait`; false: there are none. A repeat takes units again. */
    async take(units = 1, o = {}) {
        const a = { query: [["units", String(units)], ...(o.wait ? [["wait", duration(o.wait)]] : [])], wait: o.wait ?? 0 };
        if (o.signal)
            a.signal = o.signal;
        try {
            await this.connection.ask("POST", pathOf(this.name, "limits"), a);
            return true;
        }
        catch (e) {
            if (e instanceof Limited)
                return false;
            throw e;
        }
    }
}
/**
 * Connects to the gateways at these addresses, by the first request. `token` is the credential; `session` is a
 * name for the session, made once and hard to guess; `timeout` bounds a request beside its wait.
 */
export function connect(addresses, options = {}) {
    return new Connection(typeof addresses === "string" ? [addresses] : addresses, options);
}
