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
/// <reference lib="esnext.disposable" preserve="true" />
export interface Holder {
    token: number;
    count: number | string;
    holder: string;
    since: string;
    session_id: string;
    slots?: string[];
}
export interface Endpoint {
    addr: string;
    zone: string;
    weight: number;
    state: string;
    why: string;
    token: number;
    used: boolean;
    meta: Record<string, string>;
}
export interface Members {
    service: string;
    node: string;
    endpoints: Endpoint[];
    live: boolean;
    age_ms: number;
    panic: boolean;
    ignored: number;
}
export interface Loss {
    cause: string;
    since_ms: number;
    stood_ms: number;
    steps: string[];
    advice: string;
}
export interface Value {
    data: Uint8Array;
    version: number;
}
export interface ConnectOptions {
    token?: string;
    session?: string;
    node?: string;
    timeout?: number;
}
export interface LockOptions {
    ttl?: number;
    wait?: number;
    shared?: boolean;
    holder?: string;
    hold?: number;
    data?: string | Uint8Array;
    signal?: AbortSignal;
}
export interface SemaphoreOptions extends Omit<LockOptions, "shared"> {
    count?: number;
    limit?: number;
    key?: string;
    priority?: number;
    labels?: string[];
    slots?: string[];
}
export interface WatchOptions {
    poll?: number;
    signal?: AbortSignal;
}
/** A name: text, or any bytes. */
export type Name = string | Uint8Array;
type Document = Record<string, unknown>;
type Query = Record<string, Name | number | string[] | undefined>;
/** The gateway's error: its sentence, `code`, `status`, the whole `document`, and of it `loss`: why something was lost. */
export declare class SignalboxError extends Error {
    readonly code: string;
    readonly status: number;
    readonly document: Document;
    constructor(message: string, code?: string, status?: number, document?: Document, cause?: unknown);
    get loss(): Loss | undefined;
}
/** Somebody else holds it: `holders`. */
export declare class NotAcquired extends SignalboxError {
    get holders(): Holder[];
}
/** A newer request about the name took the place of this one. */ export declare class Aborted extends SignalboxError {
}
/** The session has ended, with what it held. */ export declare class SessionExpired extends SignalboxError {
}
/** The session does not hold the name any more. */ export declare class LeaseLost extends SignalboxError {
}
/** The configuration has another version; after a lost answer perhaps by this call. */ export declare class VersionMismatch extends SignalboxError {
}
/** There is no such configuration, limit or node. */ export declare class NotFound extends SignalboxError {
}
/** The token is missing or wrong. */ export declare class Unauthenticated extends SignalboxError {
}
/** The token does not have the right. */ export declare class Forbidden extends SignalboxError {
}
/** The rate limit has no units now. */ export declare class Limited extends SignalboxError {
}
/** No gateway answered in time. A change may have taken effect, and can be repeated. */ export declare class Unavailable extends SignalboxError {
}
/** Units that are held. `signal` is aborted, with the cause, before anybody else is granted them. */
export declare class Lease implements AsyncDisposable {
    readonly name: Name;
    readonly token: number;
    readonly count: number | string;
    readonly slots: string[];
    /** A waiter wants it: finish and release. */
    preempted: boolean;
    private readonly claim;
    private belief;
    private readonly lost;
    private readonly over;
    private timer;
    private readonly asked;
    /** Whether it may be relied on now. It looks at the clock. */
    get held(): boolean;
    get signal(): AbortSignal;
    /** For how long it may be relied on without another renewal. */
    get remaining(): number;
    /**
     * Releases it, and returns when a gateway has answered. Throws Unavailable if none did within
     * the connection's timeout; then it goes on trying in the background until the ttl is over.
     */
    release(): Promise<void>;
    [Symbol.asyncDispose](): Promise<void>;
    private lose;
    private schedule;
    /** Renews it each third of its ttl. A failure is no loss: what was said before stands. */
    private keep;
}
/** Several gateways of a cluster. Close it, or use it by `await using`. */
export declare class Connection implements AsyncDisposable {
    private readonly closing;
    private readonly options;
    private readonly addresses;
    private at;
    /** What ends a request or a pause early. */
    private stops;
    private attempt;
    /** Acquires a lock. Throws NotAcquired after `wait`. */
    lock(name: Name, o?: LockOptions): Promise<Lease>;
    /** Acquires units of a semaphore, which is made with `limit` if there is none. */
    semaphore(name: Name, o?: SemaphoreOptions): Promise<Lease>;
    private acquire;
    /** Who holds a lock, and who waits for it; with the name of a session that waits, why it does. */
    describe(name: Name, session?: string): Promise<Document>;
    /** Why this connection waits for a name, in sentences; empty: it does not. */
    why(name: Name): Promise<string[]>;
    config(name: Name): Config;
    service(name: Name, zone?: string): Service;
    limit(name: Name): Limit;
    /**
     * Ends all waits, watches and leases. Nothing is held when it returns; it throws Unavailable after
     * two seconds if no gateway has answered by then, and goes on until the ttls are over.
     */
    close(): Promise<void>;
    [Symbol.asyncDispose](): Promise<void>;
}
/** What a gateway has under a name. */
declare class Thing {
    protected readonly connection: Connection;
    protected readonly path: string;
    protected readonly query: Query;
}
/** A configuration: bytes with a version. */
export declare class Config extends Thing {
    /** Throws NotFound if it is not set. */
    get(): Promise<Value>;
    /** Sets it, if it has this version (0: there is none yet). Throws VersionMismatch. */
    set(data: string | Uint8Array, version?: number): Promise<number>;
    /** Yields the value and each other one; undefined: it is not set. */
    watch(o?: WatchOptions): AsyncGenerator<Value | undefined>;
    private readonly read;
}
/** The members of a service. */
export declare class Service extends Thing {
    /** `endpoints`, of which those that are `used` are to be called, and `live`. */
    members(): Promise<Members>;
    /** Yields the members and each change. */
    watch(o?: WatchOptions): AsyncGenerator<Members>;
    private readonly read;
}
/** A rate limit. */
export declare class Limit extends Thing {
    /**
     * Takes units within `wait`; false: there are none. If an answer is lost it throws Unavailable,
     * as a repeat may take units again; with `retry` it repeats.
     */
    take(units?: number, o?: {
        wait?: number;
        retry?: boolean;
        signal?: AbortSignal;
    }): Promise<boolean>;
}
/**
 * Connects to the gateways at these addresses, by the first request. `token` is the credential;
 * `timeout` bounds a request beside its wait. `session` is a name for the session of the one lease
 * that is had at a time, for a lease that outlives this process: made once and hard to guess.
 */
export declare function connect(addresses: string | string[], options?: ConnectOptions): Connection;
export {};
