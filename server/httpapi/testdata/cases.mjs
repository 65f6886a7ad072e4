// Cases of the client of TypeScript that are of its language and platform. Arguments: the client's
// folder, the case, the gateway, and an address where nobody listens.
import assert from "node:assert/strict";

const [folder, name, gateway, nobody] = process.argv.slice(2);
const { connect, NotFound, Unavailable } = await import(`${folder}/signalbox.js`);
process.on("unhandledRejection", (e) => { console.error("unhandled", e); process.exit(1); });
process.on("warning", (e) => { console.error("warned", e); process.exit(1); });

const open = () => connect(gateway, { timeout: 60_000 }); // a busy machine has the time to answer

async function until(ok) { while (!await ok()) await new Promise((done) => setTimeout(done, 20)); }

const cases = {
  async "what a caller gives is checked"() {
    for (const address of ["localhost:7074", "127.0.0.1:7074", "", "ftp://x", "http://", "http://u:p@x", "http://x?y", "//x"]) {
      assert.throws(() => connect(address), (e) => e instanceof TypeError && e.message.includes("http://"), address);
    }
    assert.throws(() => connect([]), TypeError);
    assert.throws(() => connect(gateway, { timeout: NaN }), RangeError);
    const c = open();
    for (const o of [{ ttl: NaN }, { wait: NaN }, { wait: -1 }, { wait: "5000" }, { hold: "x" }]) {
      await assert.rejects(c.lock("x", o), RangeError);
    }
    for (const version of [NaN, -1, 0.5, "1", 2 ** 53]) {
      await assert.rejects(c.config("x").set("", version), RangeError);
    }
    await assert.rejects(c.config("x").watch({ poll: NaN }).next(), RangeError);
    await assert.rejects(c.lock("x", { ttl: 30 }), /ttl is 30ms/); // it was thought to be seconds
    await assert.rejects(c.lock("x", { holder: "x".repeat(201) }), { name: "SignalboxError", code: "bad_request", status: 400 });
  },

  async "one signal ends many calls"() {
    const c = open(), held = await c.lock("jobs"), stop = new AbortController(), reason = new Error("enough");
    const o = { wait: 600_000, signal: stop.signal }, is = (e) => e === reason;
    const calls = Array.from({ length: 50 }, () => assert.rejects(c.lock("jobs", o), is));
    const watch = c.config("x").watch(o);
    assert.deepEqual(await watch.next(), { done: false, value: undefined });
    calls.push(assert.rejects(watch.next(), is));
    await until(async () => (await c.describe("jobs")).num_waiters === 50);
    await until(async () => (await c.why("jobs")).length > 0); // it may be left out of an answer
    stop.abort(reason);
    await Promise.all(calls);
    await assert.rejects(c.lock("jobs", o), is);
    await until(async () => (await c.describe("jobs")).num_waiters === 0);
    assert.deepEqual(await c.why("jobs"), []);
    await held[Symbol.asyncDispose]();
    assert.ok(!held.held && !held.signal.aborted && held.remaining === 0);
    assert.equal((await c.describe("jobs")).exists, false);
    await c[Symbol.asyncDispose]();
    await assert.rejects(c.lock("jobs"), /connect again/);
  },

  async "names of all kinds, of all things"() {
    const c = open();
    for (const name of ["a/b", "/jobs/a", "a/", "a//b", ".", "..", "%2e%2e/%", "http://x/y?z=1#w", "ü ✓", "a+b&c=d;e", "\\",
      "line\nfeed\0", " "]) {
      await c.config(name).set(name);
      assert.equal(new TextDecoder().decode((await c.config(new TextEncoder().encode(name)).get()).data), name);
      assert.deepEqual((await c.service(name, "zone a").members()).endpoints, []);
      await assert.rejects(c.limit(name).take(), (e) => e.status === 400 || e instanceof NotFound); // not all are of limits
    }
    assert.equal(await c.config("empty").set(""), 1);
    assert.equal((await c.config("empty").get()).data.length, 0);
  },

  async "what was not sent is sent to the next gateway"() {
    for (let i = 0; i < 8; i++) { // which one is first is random
      await assert.rejects(connect([nobody, gateway], { timeout: 60_000 }).limit("no-such-limit").take(), NotFound);
    }
    let cause; // of the last attempt, for which a busy machine may have no time left
    await until(async () => {
      await assert.rejects(connect(nobody, { timeout: 100 }).limit("x").take(), (e) => {
        cause = e.cause.cause;
        return e instanceof Unavailable && e.cause instanceof Error;
      });
      return cause instanceof Error;
    });
  },

  async "a request that is never answered keeps the program alive, for its time"() {
    globalThis.fetch = (_, o) => new Promise((_, fail) => o.signal.addEventListener("abort", () => fail(o.signal.reason)));
    await assert.rejects(connect(gateway, { timeout: 300 }).config("x").get(), Unavailable);
  },

  async "a program that forgets a lease"() {
    globalThis.forgotten = await open().lock("forgotten", { ttl: 1_200_000 });
    console.log("main ends");
  },

  async "a program that is told to end"() {
    const connection = open();
    process.once("SIGTERM", () => connection.close().finally(() => process.exit(143))); // as the page says
    globalThis.held = await connection.lock("told", { ttl: 1_200_000 });
    console.log("holds");
    setInterval(() => undefined, 1000);
    await new Promise(() => undefined);
  },
};

await cases[name]();
