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
type Document = Record<string, unknown>;
/** The gateway's error: its sentence, `code`, `status` and the whole `document`. */
export declare class SignalboxError extends Error {
    readonly code: string;
    readonly status: number;
    readonly document: Document;
    constructor(message: string, code?: string, status?: number, document?: Document);
}
/** Somebody else holds it: `holders`. */
export declare class NotAcquired extends SignalboxError {
    get holders(): Holder[];
}
/** A newer request about the name took the place of this one. */
export declare class Aborted extends SignalboxError {
}
/** The session has ended, with what it held. */
export declare class SessionExpired extends SignalboxError {
}
/** The session does not hold the name any more. */
export declare class LeaseLost extends SignalboxError {
}
/** The configuration has another version. */
export declare class VersionMismatch extends SignalboxError {
}
/** There is no such configuration, limit or node. */
export declare class NotFound extends SignalboxError {
}
/** The token is missing or wrong. */
export declare class Unauthenticated extends SignalboxError {
}
/** The token does not have the right. */
export declare class Forbidden extends SignalboxError {
}
/** The rate limit has no units now. */
export declare class Limited extends SignalboxError {
}
/** No gateway answered in time. A change may have taken effect; it is safe to repeat. */
export declare class Unavailable extends SignalboxError {
}
/** Units that are held. `signal` is aborted, with the cause, before anybody else is granted them. */
export declare class Lease implements AsyncDisposable {
    private readonly connection;
    readonly name: string;
    private until;
    readonly token: number;
    readonly count: number | string;
    readonly slots: string[];
    /** A waiter wants it: finish and release. */
    preempted: boolean;
    private readonly abort;
    private timer;
    /** Whether it may be relied on now. It looks at the clock. */
    get held(): boolean;
    get signal(): AbortSignal;
    /** For how long it may be relied on without another renewal. */
    get remaining(): number;
    /** Releases it. If no gateway answers, it goes on trying in the background. */
    release(): Promise<void>;
    [Symbol.asyncDispose](): Promise<void>;
    private schedule;
}
/** A session at any of several gateways. Close it, or use it by `await using`. */
export declare class Connection implements AsyncDisposable {
    private readonly options;
    private session;
    private ttl;
    private readonly leases;
    private releases;
    private waiting;
    private at;
    private closed;
    private timer;
    private readonly addresses;
    private get timeout();
    /** Acquires a lock. Throws NotAcquired after `wait`. */
    lock(name: string, o?: LockOptions): Promise<Lease>;
    /** Acquires units of a semaphore, which is made with `limit` if there is none. */
    semaphore(name: string, o?: SemaphoreOptions): Promise<Lease>;
    private acquire;
    /** Releases a name or leaves its queue, with the session if that has nothing else. */
    private giveBack;
    private tryReleases;
    /** Ends the session, so that its name is used up: the next one has another. */
    private end;
    private expire;
    private schedule;
    /** Renews each lease. */
    private keep;
    /** Who holds a lock, and who waits for it. */
    describe(name: string): Promise<Document>;
    /** Why this connection waits for a name, in sentences; empty: it does not. */
    why(name: string): Promise<string[]>;
    config(name: string): Config;
    service(name: string, zone?: string): Service;
    limit(name: string): Limit;
    private checkOpen;
    /** Ends the session: nothing is held when it returns, if a gateway answers. */
    close(): Promise<void>;
    [Symbol.asyncDispose](): Promise<void>;
}
/** A configuration: bytes with a version. */
export declare class Config {
    private readonly connection;
    private readonly name;
    /** Throws NotFound if it is not set. */
    get(): Promise<Value>;
    /** Sets it, if it has this version (0: there is none yet). Throws VersionMismatch. */
    set(data: string | Uint8Array, version?: number): Promise<number>;
    /** Yields the value and each other one; undefined: it is not set. */
    watch(o?: {
        poll?: number;
        signal?: AbortSignal;
    }): AsyncGenerator<Value | undefined>;
}
/** The members of a service. */
export declare class Service {
    private readonly connection;
    private readonly name;
    private readonly query;
    /** `endpoints`, of which those that are `used` are to be called, and `live`. */
    members(): Promise<Members>;
    /** Yields the members and each change. */
    watch(o?: {
        poll?: number;
        signal?: AbortSignal;
    }): AsyncGenerator<Members>;
}
/** A rate limit. */
export declare class Limit {
    private readonly connection;
    private readonly name;
    /** Takes units within `wait`; false: there are none. A repeat takes units again. */
    take(units?: number, o?: {
        wait?: number;
        signal?: AbortSignal;
    }): Promise<boolean>;
}
/**
 * Connects to the gateways at these addresses, by the first request. `token` is the credential; `session` is a
 * name for the session, made once and hard to guess; `timeout` bounds a request beside its wait.
 */
export declare function connect(addresses: string | string[], options?: ConnectOptions): Connection;
export {};
