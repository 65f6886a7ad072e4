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

export interface Holder { token: number; count: number | string; holder: string; since: string; session_id: string; slots?: string[] }
export interface Endpoint {
  addr: string; zone: string; weight: number; state: string; why: string; token: number; used: boolean; meta: Record<string, string>;
}
export interface Members { service: string; node: string; endpoints: Endpoint[]; live: boolean; age_ms: number; panic: boolean; ignored: number }
export interface Loss { cause: string; since_ms: number; stood_ms: number; steps: string[]; advice: string }
export interface Value { data: Uint8Array; version: number }
export interface ConnectOptions { token?: string; session?: string; node?: string; timeout?: number }
export interface LockOptions {
  ttl?: number; wait?: number; shared?: boolean; holder?: string; hold?: number; data?: string | Uint8Array; signal?: AbortSignal;
}
export interface SemaphoreOptions extends Omit<LockOptions, "shared"> {
  count?: number; limit?: number; key?: string; priority?: number; labels?: string[]; slots?: string[];
}
export interface WatchOptions { poll?: number; signal?: AbortSignal }
/** A name: text, or any bytes. */
export type Name = string | Uint8Array;
type Document = Record<string, unknown>;
type Query = Record<string, Name | number | string[] | undefined>; // what is empty or undefined is left out

/** The gateway's error: its sentence, `code`, `status`, the whole `document`, and of it `loss`: why something was lost. */
export class SignalboxError extends Error {
  readonly code: string; readonly status: number; readonly document: Document;
  constructor(message: string, code = "", status = 0, document: Document = {}, cause?: unknown) {
    super(message, cause === undefined ? {} : { cause });
    [this.name, this.code, this.status, this.document] = [new.target.name, code, status, document];
  }
  get loss(): Loss | undefined { return this.document.loss as Loss | undefined; }
}
/** Somebody else holds it: `holders`. */
export class NotAcquired extends SignalboxError {
  get holders(): Holder[] { return Array.isArray(this.document.holders) ? this.document.holders : []; }
}
/** A newer request about the name took the place of this one. */ export class Aborted extends SignalboxError {}
/** The session has ended, with what it held. */ export class SessionExpired extends SignalboxError {}
/** The session does not hold the name any more. */ export class LeaseLost extends SignalboxError {}
/** The configuration has another version; after a lost answer perhaps by this call. */ export class VersionMismatch extends SignalboxError {}
/** There is no such configuration, limit or node. */ export class NotFound extends SignalboxError {}
/** The token is missing or wrong. */ export class Unauthenticated extends SignalboxError {}
/** The token does not have the right. */ export class Forbidden extends SignalboxError {}
/** The rate limit has no units now. */ export class Limited extends SignalboxError {}
/** No gateway answered in time. A change may have taken effect, and can be repeated. */ export class Unavailable extends SignalboxError {}
const byCode = new Map<string, typeof SignalboxError>(Object.entries({
  not_acquired: NotAcquired, aborted: Aborted, session_expired: SessionExpired, lease_lost: LeaseLost, version_mismatch: VersionMismatch,
  not_found: NotFound, unauthenticated: Unauthenticated, forbidden: Forbidden, browser: Forbidden, limited: Limited,
}));

// A moment, by two clocks: performance.now() may stand still while the machine sleeps (on Linux it
// does), and Date.now() goes on but can be set. The faster of both counts. So a clock that is set
// forward can end belief early, and only one that is set back during a sleep could prolong it.
interface Moment { ticks: number; wall: number }
const moment = (): Moment => ({ ticks: performance.now(), wall: Date.now() });
const since = (m: Moment): number => Math.max(performance.now() - m.ticks, Date.now() - m.wall);
/** What an answer says: `ms` from `waited` after `sent` on, and before anybody else is granted it. */
interface Belief { sent: Moment; waited: number; ms: number; preempt: boolean }
const left = (b: Belief): number => b.waited + b.ms - since(b.sent);

/** A timer. In the background it does not keep the program alive. */
function after(ms: number, background: boolean, f: () => void): ReturnType<typeof setTimeout> {
  const timer = setTimeout(f, Math.max(0, Math.min(ms, 2 ** 31 - 1))) as unknown;
  if (background && typeof timer === "number") (globalThis as { Deno?: { unrefTimer(t: number): void } }).Deno?.unrefTimer(timer);
  else if (background) (timer as { unref?(): void }).unref?.();
  return timer as ReturnType<typeof setTimeout>;
}
const listeners = new WeakMap<AbortSignal, Set<() => void>>();
/** Has f called when one of the signals is aborted. Each has one listener: Node warns of eleven. */
function onAbort(signals: AbortSignal[], f: () => void): () => void {
  const sets = signals.map((s) => {
    const had = listeners.get(s), all = had ?? new Set();
    if (!had) s.addEventListener("abort", () => all.forEach((f) => f()), { once: true });
    listeners.set(s, all.add(f));
    return all;
  });
  return () => sets.forEach((all) => all.delete(f));
}
/** Waits; an abort ends it early, and is seen by who looks at the signal. */
const sleep = (ms: number, signals: AbortSignal[], background = false): Promise<void> => new Promise((done) => {
  const timer = after(ms, background, end), forget = onAbort(signals, end);
  if (signals.some((s) => s.aborted)) end();
  function end(): void { clearTimeout(timer); forget(); done(); }
});
/** Waits for a request that goes on without it, for at most ms. */
function atMost(ms: number, work: Promise<unknown>, what: string, ...asked: Ask[]): Promise<void> {
  return new Promise((done, fail) => {
    const timer = after(ms, false, () => fail(new Unavailable(`no gateway has answered ${what} within ${ms} ms; it goes on until the ttl is over`,
      "", 0, {}, asked.find((a) => a.failure)?.failure)));
    work.then(() => done(), fail).finally(() => clearTimeout(timer));
  });
}
/** Checks a time that a caller gives: nothing here counts with NaN. */
function time(what: string, ms: number): number {
  if (typeof ms === "number" && ms >= 0) return ms;
  throw new RangeError(`${what} is ${ms}; give it as milliseconds, such as 30000`);
}
const duration = (ms: number): string => ms > 0 ? `${Math.ceil(ms)}ms` : "";
const isWhole = (x: unknown, most = Number.MAX_SAFE_INTEGER): x is number => Number.isSafeInteger(x) && x as number >= 0 && x as number <= most;
const isToken = (x: unknown): x is number => isWhole(x) && x > 0;
const isCount = (x: unknown): boolean => isToken(x) || typeof x === "string" && /^(max|\d+)$/.test(x);
const isTexts = (x: unknown): x is string[] => Array.isArray(x) && x.every((s) => typeof s === "string");
const show = (name: Name): string => typeof name === "string" ? name : new TextDecoder().decode(name);
const percent = (x: Name | number): string => typeof x !== "object" ? encodeURIComponent(x)
  : Array.from(x, (b) => `%${b.toString(16).padStart(2, "0")}`).join("");

/** The path and query of a name; in the query if something between could take it for another path. */
function pathOf(kind: string, name: Name, query: Query = {}): [string, Query] {
  if (typeof name === "string" && !/[\0-\x1f\x7f\\]/.test(name) && name.split("/").every((s) => !/^\.{0,2}$/.test(s))) {
    return [`/v1/${kind}/${name.split("/").map(percent).join("/")}`, query];
  }
  const bytes = typeof name === "string" ? new TextEncoder().encode(name) : name, name64 = btoa(String.fromCharCode(...bytes));
  return [`/v1/${kind}/`, { ...query, name64: name64.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "") }];
}
interface Answer { status: number; kind: string; code: string; etag: string; body: Uint8Array; document: Document; sent: Moment; retryAfter: number }
type Accept<T> = (a: Answer) => T | undefined; // undefined: it is not an answer of a gateway
interface Ask {
  query?: Query; body?: string | Uint8Array | undefined; headers?: Record<string, string>; session?: string; signal?: AbortSignal | undefined;
  wait?: number; attempt?: number; // for how long a gateway is asked to wait, and for how long it is asked beside that
  within?: number; pause?: number; // for how long the request is repeated, and the longest pause between
  once?: boolean; // it is not repeated if it may have taken effect
  background?: boolean; // it keeps no program alive, and goes on when the connection is closed
  failure?: SignalboxError; ran?: Moment | undefined; // why the last attempt failed, and when one ended in time last
}

/** What an answer in a state says of the session. */
function beliefOf({ status, document, sent }: Answer, is: string, ttl: number): Belief | undefined {
  const { state, waited_ms: waited, expires_in_ms: ms, preempt } = document, passed = since(sent);
  if (status !== 200 || state !== is || !isWhole(waited, passed + 1000) || !isWhole(ms, ttl)) return undefined;
  return { sent, waited: Math.min(waited, passed), ms, preempt: preempt === true };
}

/** Units that are held. `signal` is aborted, with the cause, before anybody else is granted them. */
export class Lease implements AsyncDisposable {
  readonly name: Name; readonly token: number; readonly count: number | string; readonly slots: string[];
  /** A waiter wants it: finish and release. */
  preempted: boolean;
  private readonly claim: Claim;
  private belief: Belief;
  private readonly lost = new AbortController();
  private readonly over = new AbortController(); // aborted: it is lost or released
  private timer: ReturnType<typeof setTimeout> | undefined; // ends belief, whatever requests do; it looks soon after a sleep
  private readonly asked: Ask = { background: true };
  /** @internal */
  constructor(claim: Claim, d: Document, belief: Belief) {
    [this.claim, this.belief, this.name, this.preempted] = [claim, belief, claim.name, belief.preempt];
    [this.token, this.count, this.slots] = [d.token as number, d.count as number | string, (d.slots ?? []) as string[]];
    this.schedule();
    void this.keep();
  }
  /** Whether it may be relied on now. It looks at the clock. */
  get held(): boolean {
    const ends = !this.over.signal.aborted && left(this.belief) <= 0;
    if (ends) this.lose(new LeaseLost("it was not renewed in time; acquire it again", "lease_lost", 0, { loss: lossOf(this.asked, this.belief.sent, this.claim.ttl) }, this.asked.failure));
    return !this.over.signal.aborted;
  }
  get signal(): AbortSignal { void this.held; return this.lost.signal; }
  /** For how long it may be relied on without another renewal. */
  get remaining(): number { return this.held ? left(this.belief) : 0; }
  /**
   * Releases it, and returns when a gateway has answered. Throws Unavailable if none did within
   * the connection's timeout; then it goes on trying in the background until the ttl is over.
   */
  async release(): Promise<void> {
    await atMost(this.claim.connection.timeout, this.claim.end(), `the release of ${show(this.name)}`, this.claim.asked);
  }
  async [Symbol.asyncDispose](): Promise<void> { await this.release(); }
  /** @internal Stops renewing. */
  stop(): void { clearTimeout(this.timer); this.over.abort(); }
  private lose(cause: SignalboxError): void {
    void this.claim.end(); // at first, so that what listens finds it lost; what is not believed is given back
    this.lost.abort(cause);
  }
  private schedule(): void {
    this.timer = after(Math.min(left(this.belief) + 1, 1000), true, () => { if (this.held) this.schedule(); });
  }
  /** Renews it each third of its ttl. A failure is no loss: what was said before stands. */
  private async keep(): Promise<void> {
    const { connection, session, ttl } = this.claim, { asked, over: { signal } } = this;
    // The next attempt is sent within a third of the ttl, whatever happens to one.
    Object.assign(asked, { query: { holding: this.name }, session, signal, attempt: Math.max(ttl / 6, Math.min(1000, ttl / 4)), pause: ttl / 12 });
    const due = ({ sent, waited, ms }: Belief): number => waited + Math.max(ttl / 24, ms / 3) - since(sent); // ms is mostly the ttl
    for (let pause = due(this.belief); ;) {
      await sleep(pause, [signal], true);
      if (!this.held) return;
      asked.within = left(this.belief);
      try {
        const belief = await connection.ask("POST", "/v1/session/keepalive", (a) => beliefOf(a, "alive", ttl), asked);
        if (left(belief) > left(this.belief)) this.belief = belief;
        this.preempted ||= belief.preempt;
        pause = due(belief);
        delete asked.failure;
      } catch (e) {
        if (signal.aborted) return;
        if (e instanceof LeaseLost || e instanceof SessionExpired) return this.lose(e);
        if (e instanceof SignalboxError) asked.failure = e;
        pause = ttl / 12;
      }
    }
  }
}

const causes: Record<number, string> = { 0: "unreachable", 401: "refused", 403: "refused", 429: "overloaded" };
/** Why a lease was not renewed, if the last failure came in time: else it is not known whether the program ran. */
const lossOf = ({ failure: e, ran }: Ask, sent: Moment, ttl: number): Loss => ({ since_ms: Math.round(since(sent)), stood_ms: 0, advice: e?.loss?.advice ?? "",
  cause: ran && since(ran) < ttl / 3 + 500 && e && (e.status || e instanceof Unavailable) && causes[e.status] || "unknown", steps: e ? [e.message] : [] });
const givenSessions = new Map<string | undefined, Claim>(); // those that callers gave and that are in use
/** One lease's session, from before its first request until nothing of it is left. */
class Claim {
  readonly connection: Connection; readonly name: Name; readonly ttl: number; readonly session: string;
  private readonly given: string | undefined;
  readonly asked: Ask = { background: true };
  lease: Lease | undefined;
  token: number | undefined;
  unseen = true; // an acquire may still arrive, and start the session
  private ending: Promise<void> | undefined;
  constructor(connection: Connection, name: Name, ttl: number, given: string | undefined) {
    [this.connection, this.name, this.ttl, this.given, this.session] = [connection, name, ttl, given, given ?? crypto.randomUUID()];
    connection.claims.add(this);
    if (given !== undefined) givenSessions.set(given, this);
  }
  /** Gives back what it has and may get: the first answer settles it, and it goes on until the ttl. */
  end(): Promise<void> {
    this.lease?.stop();
    this.ending ??= new Promise((answered, fail) => {
      this.giveBack(answered).catch(fail).finally(() => this.connection.claims.delete(this) && givenSessions.delete(this.given));
    });
    this.ending.catch(() => undefined);
    return this.ending;
  }
  /** Ends the session, so that its name is used up; of one that the caller gave, the grant alone. */
  private async giveBack(answered: () => void): Promise<void> {
    const { asked, given, ttl, connection } = this, began = moment();
    const [path, query] = given === undefined ? ["/v1/session", {}] : pathOf("locks", this.name, { token: this.token });
    Object.assign(asked, { session: this.session, query, attempt: 1000, pause: Math.min(1000, ttl / 3) });
    const accept: Accept<boolean> = ({ status, code, document: { ended, released } }) => {
      const done = code !== "session_expired" && (given === undefined ? ended : released);
      return (status === 200 || code) && typeof done === "boolean" ? done : undefined;
    };
    for (let pause = 500; ; pause = Math.min(2 * pause, ttl / 3)) {
      asked.within = ttl + 1000 - since(began);
      const done = await connection.ask("DELETE", path, accept, asked);
      answered();
      if (done || !this.unseen || since(began) + pause >= ttl) return;
      await sleep(pause, [], true); // what was sent before may arrive behind this
    }
  }
}

/** Several gateways of a cluster. Close it, or use it by `await using`. */
export class Connection implements AsyncDisposable {
  /** @internal */ readonly claims = new Set<Claim>();
  /** @internal */ readonly timeout: number;
  private readonly closing = new AbortController();
  private readonly options: ConnectOptions;
  private readonly addresses: string[];
  private at: number;
  /** @internal */
  constructor(addresses: string[], options: ConnectOptions) {
    this.options = options;
    if (addresses.length === 0) throw new TypeError("no address is given; give one such as http://127.0.0.1:7074");
    this.addresses = addresses.map((a) => {
      if (/^https?:\/\/[^/?#@]+(\/[^?#]*)?$/i.test(a)) return new URL(a).href.replace(/\/$/, "");
      throw new TypeError(`"${a}" is not the address of a gateway; write it as ${/^[^/]+$/.test(a) ? `http://${a}` : "http://127.0.0.1:7074"}`);
    });
    this.at = Math.floor(Math.random() * addresses.length);
    this.timeout = time("timeout", options.timeout ?? 10_000);
  }

  /** @internal Sends a request until it is decided, to one gateway after the other. */
  async ask<T>(method: string, path: string, accept: Accept<T>, a: Ask = {}): Promise<T> {
    const began = moment(), wait = a.wait ?? 0, within = a.within ?? wait + this.timeout, signals = this.stops(a);
    for (let tries = 1, at = this.at; ; tries++) {
      for (const s of signals) s.throwIfAborted();
      const address = this.addresses[at]!;
      let retryAfter = 0, sent = true;
      try {
        const limit = Math.max(1, Math.min(within - since(began), wait + (a.attempt ?? this.timeout / 3)));
        const r = await this.attempt(method, address + path, a, signals, limit), { status, code } = r, accepted = accept(r);
        if (accepted !== undefined) return accepted;
        if (code && status < 500) throw new (byCode.get(code) ?? SignalboxError)(`${r.document.detail}`, code, status, r.document);
        const why = code ? `${r.document.detail}` : `${address} answered ${status} ${r.kind}, which no gateway does; check the address`;
        a.failure = new Unavailable(why, code, status, r.document);
        [retryAfter, sent] = [r.retryAfter, status !== 503 || !code];
      } catch (e) {
        for (const s of signals) s.throwIfAborted();
        if (e instanceof SignalboxError) throw e;
        const { code, cause, message } = e as Error & { code?: string; cause?: Error & { code?: string } };
        const why = [cause?.message || cause?.code, message, code].filter(Boolean).join(", ");
        a.failure = new Unavailable(`${address} does not answer: ${why}`, "", 0, {}, e);
        sent = !/refused/i.test(why);
      }
      this.at = at = (at + 1) % this.addresses.length;
      const longest = tries % this.addresses.length === 0 ? retryAfter : 0; // all were asked
      const pause = Math.min(Math.max(longest, Math.min(20 * 2 ** tries, 1000) * (0.5 + Math.random())), a.pause ?? 5000);
      if (a.once && sent || since(began) + pause >= within) throw a.failure;
      await sleep(pause, signals, a.background);
    }
  }
  /** What ends a request or a pause early. */
  private stops(a: Ask): AbortSignal[] { return [...(a.background ? [] : [this.closing.signal]), ...(a.signal ? [a.signal] : [])]; }
  private async attempt(method: string, url: string, a: Ask, signals: AbortSignal[], limit: number): Promise<Answer> {
    const headers: Record<string, string> = { ...a.headers }, query: Query = { node: this.options.node ?? "/default", ...a.query };
    const params = Object.entries(query).flatMap(([key, v]) => (Array.isArray(v) ? v : [v ?? ""]).map((x) => [key, percent(x)]));
    if (this.options.token) headers["Authorization"] = `Bearer ${this.options.token}`;
    if (a.session) headers["Signalbox-Session"] = a.session;
    const stop = new AbortController(), forget = onAbort(signals, () => stop.abort());
    const timer = after(limit, a.background === true, () => stop.abort(new Error(`there is no answer after ${Math.round(limit)} ms`)));
    const sent = moment(); // before it is sent
    try {
      const r = await fetch(`${url}?${params.filter(([, x]) => x).map((p) => p.join("=")).join("&")}`, {
        method, headers, redirect: "manual", signal: stop.signal, ...(a.body?.length ? { body: a.body as BodyInit } : {}),
      });
      const body = new Uint8Array(await r.arrayBuffer()), head = (name: string): string => r.headers.get(name) ?? "";
      const kind = head("Content-Type").split(";")[0]!.trim().toLowerCase();
      const ours = body.length > 0 && kind === (r.status < 400 ? "application/json" : "application/problem+json");
      const json: unknown = ours ? JSON.parse(new TextDecoder().decode(body)) : undefined;
      const document = typeof json === "object" && json !== null ? json as Document : {}, { code, detail } = document;
      const problem = r.status >= 400 && typeof code === "string" && typeof detail === "string";
      const [, tag] = /^(?:W\/)?"([!#-~]+?)(?:-(?:gzip|br|deflate|zstd))?"$/.exec(head("ETag")) ?? []; // proxies change it so
      const etag = tag ? `"${tag}"` : "", retryAfter = 1000 * Number(head("Retry-After")) || 0;
      return { status: r.status, kind, code: problem ? code : "", etag, body, document, sent, retryAfter };
    } finally {
      a.ran = since(sent) < limit + 500 ? moment() : undefined;
      clearTimeout(timer); forget();
    }
  }
  /** Acquires a lock. Throws NotAcquired after `wait`. */
  lock(name: Name, o: LockOptions = {}): Promise<Lease> { return this.acquire(name, { mode: o.shared ? "shared" : "exclusive" }, o); }
  /** Acquires units of a semaphore, which is made with `limit` if there is none. */
  semaphore(name: Name, o: SemaphoreOptions = {}): Promise<Lease> {
    return this.acquire(name, { count: o.count ?? 1, limit: o.limit, key: o.key, priority: o.priority, label: o.labels, slot: o.slots }, o);
  }
  private async acquire(name: Name, what: Query, o: LockOptions): Promise<Lease> {
    const ttl = time("ttl", o.ttl ?? 30_000), wait = time("wait", o.wait ?? 0), began = moment();
    const { signal, holder } = o, stops = this.stops({ signal }), given = this.options.session, hold = duration(time("hold", o.hold ?? 0));
    const [path, query] = pathOf("locks", name, { ...what, ttl: `${ttl}ms`, holder, hold });
    for (const s of stops) s.throwIfAborted();
    const busy = given !== undefined && givenSessions.get(given);
    if (busy) throw new SignalboxError(`a given session has one lock at a time, and it has ${show(busy.name)}; release that, or give another one`);
    const accept: Accept<[Document, Belief?]> = (a) => {
      const { state, token, count, slots = [] } = a.document, belief = beliefOf(a, "acquired", ttl);
      if (a.status === 202 && state === "waiting") return [a.document];
      return belief && isToken(token) && isCount(count) && isTexts(slots) ? [a.document, belief] : undefined;
    };
    // If a gateway stands still, the request is sent to another one before the session ends.
    const grace = Math.min(this.timeout / 3, Math.max(ttl / 3, 1000)), whole = Math.max(wait + grace, this.timeout);
    let claim = new Claim(this, name, ttl, given);
    for (;;) {
      const part = wait > 0 ? Math.max(1, Math.min(wait - since(began), 15_000, ttl / 3)) : 0, sent = moment();
      const asked: Ask = {
        query: { ...query, wait: duration(part) }, body: o.data, session: claim.session, signal, wait: part,
        attempt: grace, within: whole - since(began), pause: Math.min(5000, ttl / 3),
      };
      try {
        const [document, belief] = await this.ask("POST", path, accept, asked);
        [claim.unseen, claim.token] = [false, belief && document.token as number];
        for (const s of stops) s.throwIfAborted();
        if (belief && left(belief) > 0) return claim.lease = new Lease(claim, document, belief);
        const late = !belief && since(began) >= wait;
        if (late) throw new NotAcquired(`${show(name)} is held by others, after ${wait} ms`, "not_acquired", 409, document);
      } catch (e) {
        const stopped = stops.some((s) => s.aborted), own = given === undefined && !stopped && since(began) < whole - grace;
        if (!own || !(e instanceof Aborted || e instanceof LeaseLost)) { // else a late copy of a request was in the way
          if (!stopped && !asked.failure) claim.unseen = false; // it was sent once, and refused
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
  describe(name: Name, session = ""): Promise<Document> {
    const [path, query] = pathOf("locks", name);
    const accept: Accept<Document> = (a) => a.status === 200 && typeof a.document.exists === "boolean" ? a.document : undefined;
    return this.ask("GET", path, accept, { query, session });
  }
  /** Why this connection waits for a name, in sentences; empty: it does not. */
  async why(name: Name): Promise<string[]> {
    const waits = [...this.claims].find((c) => !c.lease && percent(c.name) === percent(name));
    if (!waits) return [];
    const { why } = await this.describe(name, waits.session).catch((e): Document => { if (e instanceof SessionExpired) return {}; throw e; });
    return isTexts(why) ? why : [];
  }
  config(name: Name): Config { return new Config(this, ...pathOf("config", name)); }
  service(name: Name, zone = ""): Service { return new Service(this, ...pathOf("services", name, { zone })); }
  limit(name: Name): Limit { return new Limit(this, ...pathOf("limits", name)); }
  /** @internal Yields each change; null: there is nothing. An outage does not end it. */
  async *watch<T>(path: string, query: Query, read: Accept<T | null>, { poll = 15_000, signal }: WatchOptions): AsyncGenerator<T | undefined> {
    const wait = time("poll", poll);
    for (let known = "", first = true, quick = false; ; first = false) {
      const sent = moment(), a: Ask = { query, within: Infinity, signal };
      if (known) Object.assign(a, { query: { ...query, wait: duration(wait) }, headers: { "If-None-Match": known }, wait });
      const [tag, value] = await this.ask<[string, (T | null)?]>("GET", path, (r) => {
        if (r.status === 304 && known) return [known];
        const value = read(r);
        return value === undefined || value !== null && !r.etag ? undefined : [value === null ? "" : r.etag, value];
      }, a);
      if (first || tag !== known) yield value ?? undefined;
      known = tag;
      const soon = since(sent) < 1000; // one answer may come at once, and no two, whatever is between
      if (soon && (quick || !known)) await sleep(1000 - since(sent), this.stops({ signal }));
      quick = soon;
    }
  }

  /**
   * Ends all waits, watches and leases. Nothing is held when it returns; it throws Unavailable after
   * two seconds if no gateway has answered by then, and goes on until the ttls are over.
   */
  async close(): Promise<void> {
    this.closing.abort(new SignalboxError("the connection is closed; connect again", "closed"));
    const claims = [...this.claims], ends = Promise.all(claims.map((c) => c.end()));
    await atMost(Math.min(2000, this.timeout), ends, "the end of the connection", ...claims.map((c) => c.asked));
  }
  async [Symbol.asyncDispose](): Promise<void> { await this.close(); }
}

/** What a gateway has under a name. */
class Thing {
  protected readonly connection: Connection; protected readonly path: string; protected readonly query: Query;
  /** @internal */
  constructor(connection: Connection, path: string, query: Query) { [this.connection, this.path, this.query] = [connection, path, query]; }
}

/** A configuration: bytes with a version. */
export class Config extends Thing {
  /** Throws NotFound if it is not set. */
  get(): Promise<Value> { return this.connection.ask("GET", this.path, this.read, { query: this.query }); }
  /** Sets it, if it has this version (0: there is none yet). Throws VersionMismatch. */
  async set(data: string | Uint8Array, version?: number): Promise<number> {
    if (version !== undefined && !isWhole(version)) throw new RangeError(`the version is ${version}; give one of get or set, or 0`);
    const headers: Record<string, string> = version === undefined ? {} : version ? { "If-Match": `"${version}"` } : { "If-None-Match": "*" };
    const accept: Accept<number> = ({ status, document: { version } }) => status === 200 && isWhole(version) ? version : undefined;
    return this.connection.ask("PUT", this.path, accept, { query: this.query, body: data, headers });
  }
  /** Yields the value and each other one; undefined: it is not set. */
  watch(o: WatchOptions = {}): AsyncGenerator<Value | undefined> {
    return this.connection.watch(this.path, this.query, (a) => a.code === "not_found" ? null : this.read(a), o);
  }
  private readonly read: Accept<Value> = ({ status, kind, etag, body: data }) => {
    const version = Number(etag.slice(1, -1) || NaN);
    return status === 200 && kind === "application/octet-stream" && isWhole(version) ? { data, version } : undefined;
  };
}

/** The members of a service. */
export class Service extends Thing {
  /** `endpoints`, of which those that are `used` are to be called, and `live`. */
  members(): Promise<Members> { return this.connection.ask("GET", this.path, this.read, { query: this.query }); }
  /** Yields the members and each change. */
  watch(o: WatchOptions = {}): AsyncGenerator<Members> {
    return this.connection.watch(this.path, this.query, this.read, o) as AsyncGenerator<Members>; // there is always something
  }
  private readonly read: Accept<Members> = ({ status, document: d }) =>
    status === 200 && Array.isArray(d.endpoints) && typeof d.live === "boolean" && isWhole(d.age_ms) ? d as unknown as Members : undefined;
}

/** A rate limit. */
export class Limit extends Thing {
  /**
   * Takes units within `wait`; false: there are none. If an answer is lost it throws Unavailable,
   * as a repeat may take units again; with `retry` it repeats.
   */
  async take(units = 1, o: { wait?: number; retry?: boolean; signal?: AbortSignal } = {}): Promise<boolean> {
    const wait = time("wait", o.wait ?? 0), query = { ...this.query, units, wait: duration(wait) };
    const accept: Accept<boolean> = (a) => a.code === "limited" ? false : a.status === 200 && a.document.admitted === true || undefined;
    const a: Ask = { query, wait, signal: o.signal, once: !o.retry, attempt: this.connection.timeout / (o.retry ? 3 : 1) };
    return this.connection.ask("POST", this.path, accept, a);
  }
}

/**
 * Connects to the gateways at these addresses, by the first request. `token` is the credential;
 * `timeout` bounds a request beside its wait. `session` is a name for the session of the one lease
 * that is had at a time, for a lease that outlives this process: made once and hard to guess.
 */
export function connect(addresses: string | string[], options: ConnectOptions = {}): Connection {
  return new Connection(typeof addresses === "string" ? [addresses] : addresses, options);
}
