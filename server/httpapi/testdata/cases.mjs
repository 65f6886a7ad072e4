// Cases of the client of TypeScript on a real platform, between a gateway and a gate that the tests
// switch. Arguments: the client's folder, the case, the gate, the gateway, and what the case takes.
import assert from "node:assert/strict";
import { closeSync, openSync, unlinkSync } from "node:fs";

const [folder, name, gate, gateway, ...rest] = process.argv.slice(2);
const sb = await import(`${folder}/signalbox.js`);
const { connect, LeaseLost, NotAcquired, Unavailable } = sb;
process.on("unhandledRejection", (e) => { console.error("unhandled", e); process.exit(1); });

/** Switches the gate, or the one at a path of its own. An answer is what it writes on each connection before it closes it. */
const turn = (mode, answer = "", at = gate) => fetch(`${at}/gate/${mode}`, { method: "POST", body: answer }).then((r) => r.text());
const count = async (text) => Number(await fetch(`${gate}/gate/count?${encodeURIComponent(text)}`).then((r) => r.text()));
const name64 = (bytes) => Buffer.from(bytes).toString("base64url");
const lock = (of) => fetch(`${gateway}/v1/locks/?name64=${name64(of)}`).then((r) => r.json());
async function until(ok) { while (!await ok()) await new Promise((done) => setTimeout(done, 20)); }
const free = (of) => until(async () => { const d = await lock(of); return !d.num_owners && !d.num_waiters; });
const aborted = (signal) => signal.aborted ? undefined : new Promise((done) => signal.addEventListener("abort", done));
const alive = setInterval(() => undefined, 1000); // as a server is that does other work

const answer = (status, kind, body) => `HTTP/1.1 ${status}\r\nContent-Type: ${kind}\r\nContent-Length: ${Buffer.byteLength(body)}\r\nConnection: close\r\n\r\n${body}`;
const json = (d) => answer("200 OK", "application/json", typeof d === "string" ? d : JSON.stringify(d));
const granted = { state: "acquired", token: 1, count: "max", waited_ms: 0, expires_in_ms: 1000 };
const hostile = {
  "a captive portal": answer("200 OK", "text/html; charset=utf-8", "<html>Please log in</html>"),
  "a grant with the wrong media type": answer("200 OK", "text/plain", JSON.stringify(granted)),
  "a redirect": "HTTP/1.1 302 Found\r\nLocation: /v1/ready\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
  "another service": json({ status: "ok" }), "a list": json([1]), "null": json(null), "a token alone": json({ token: 1 }),
  "no times": json({ state: "acquired", token: 1, count: "max" }), "NaN": json('{"state":"acquired","token":NaN,"count":1}'),
  "a huge time": json({ ...granted, expires_in_ms: 2 ** 40 }), "a time beyond all numbers": json('{"state":"acquired","token":1,"count":1,"waited_ms":0,"expires_in_ms":1e999}'),
  "a huge wait": json({ ...granted, waited_ms: 2 ** 40 }), "a negative wait": json({ ...granted, waited_ms: -1000 }), "times as text": json({ ...granted, expires_in_ms: "1000" }),
  "a token above what is exact": json('{"state":"acquired","token":9007199254740993,"count":1,"waited_ms":0,"expires_in_ms":1000}'),
  "another state": json({ ...granted, state: "alive?" }), "an answer that is cut": json(granted).slice(0, -10), "half a header": "HTTP/1.1 200 OK\r\nContent-Ty",
  "another status": json(granted).replace("200 OK", "201 Created"), "no content": "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n",
  "a proxy's 502": answer("502 Bad Gateway", "text/html", "<html>"), "a wall's 403": answer("403 Forbidden", "text/html", "<html>"),
  "another's problem": answer("409 Conflict", "application/problem+json", "{}"), "a wrong 500": answer("500 Oops", "application/json", "{not json"),
};

const cases = {
  async "answers that are not a gateway's"() {
    await Promise.all(Object.entries(hostile).map(async ([what, raw], i) => {
      const at = `${gate}/at/${i}`, kept = await connect(at).lock(`lost at ${what}`, { ttl: 2000 });
      await turn("answer", raw, at);
      const lease = await connect([at, gateway]).lock(`hostile ${what}`, { ttl: 60_000 }); // the next gateway has it
      assert.equal((await lock(lease.name)).owners[0].token, lease.token, what);
      await lease.release();
      const alone = connect(at, { timeout: 100 });
      await assert.rejects(alone.lock("x"), Unavailable, what);
      await assert.rejects(alone.config("x").get(), Unavailable, what);
      await assert.rejects(alone.service("x").members(), Unavailable, what);
      await assert.rejects(alone.limit("x").take(), Unavailable, what);
      await aborted(kept.signal);
      assert.ok(!kept.held && kept.remaining === 0 && kept.signal.reason instanceof LeaseLost, what);
      assert.ok(kept.signal.reason.cause instanceof Unavailable, what);
    }));
  },

  async "a release while the gateway is away"() {
    const c = connect(gate, { timeout: 200 }), lease = await c.lock("jobs", { ttl: 1_200_000 });
    await turn("away");
    await assert.rejects(lease.release(), (e) => e instanceof Unavailable && e.cause instanceof Unavailable && e.cause.cause instanceof Error);
    assert.ok(!lease.held && !lease.signal.aborted);
    assert.equal((await lock("jobs")).num_owners, 1);
    await turn("pass");
    await free("jobs");
    await lease.release(); // it is done
    await c.close();
  },

  async "a wait that is given up"() {
    const reason = new Error("enough");
    for (const mode of ["pass", "away", "hang", "late"]) {
      const c = connect(gate), other = await connect(gateway).lock("jobs", { ttl: 1_200_000 });
      await turn(mode);
      const stop = new AbortController(), waits = c.lock("jobs", { ttl: 1_200_000, wait: 600_000, signal: stop.signal });
      if (mode === "pass" || mode === "late") await until(async () => (await lock("jobs")).num_waiters === 1);
      if (mode === "late") { // it is granted, and nobody reads that
        await other.release();
        await until(async () => (await lock("jobs")).num_owners === 1);
      }
      stop.abort(reason);
      await assert.rejects(waits, (e) => e === reason, mode);
      await turn("pass");
      await other.release();
      await free("jobs");
      await assert.rejects(c.lock("jobs", { signal: stop.signal }), (e) => e === reason);
      await c.close();
    }
    const c = connect("http://127.0.0.1:1".replace("1:1", `1:${rest[0]}`), { timeout: 200 }); // nobody listens there
    await assert.rejects(c.lock("jobs"), (e) => e instanceof Unavailable && /refused/i.test(e.message) && e.cause instanceof Error);
  },

  async "the end of a connection"() {
    for (const mode of ["away", "hang"]) {
      const c = connect(gate), lease = await c.lock("jobs", { ttl: 1_200_000 }), waits = c.lock("jobs", { ttl: 1_200_000, wait: 600_000 });
      const refused = assert.rejects(waits, /connection is closed/);
      await until(async () => (await lock("jobs")).num_waiters === 1);
      await turn(mode);
      await assert.rejects(c.close(), Unavailable, mode);
      await refused;
      assert.ok(!lease.held);
      await assert.rejects(c.lock("jobs"), /connection is closed/);
      await turn("pass");
      await free("jobs");
      await c.close();
    }
  },

  async "tags that a proxy makes weak"() {
    const c = connect(gate), flags = c.config("flags");
    assert.equal(await flags.set("one", 0), 1);
    await turn("weak");
    const { version } = await flags.get();
    assert.equal(await flags.set("two", version), 2);
    const seen = [];
    const before = await count("GET /v1/config/flags");
    for await (const value of flags.watch()) {
      seen.push(value.version);
      if (value.version === 4) break;
      await flags.set(`${value.version}`, value.version);
    }
    assert.deepEqual(seen, [2, 3, 4]);
    assert.ok(await count("GET /v1/config/flags") - before < 8);
    await assert.rejects(flags.set("x", NaN), RangeError);
  },

  async "a watch through an outage"() {
    const c = connect(gate), flags = c.config("outage"), direct = connect(gateway).config("outage"), seen = [];
    const stop = new AbortController();
    const turns = ["answer", "away", "pass", "answer"], raw = [hostile["a proxy's 502"], "", "", answer("504 Gateway Timeout", "text/html", "")];
    try {
      for await (const value of flags.watch({ signal: stop.signal })) {
        seen.push(value?.version);
        const mode = turns.shift(), text = raw.shift();
        if (!mode) { stop.abort(); continue; }
        const asked = await count("GET /v1/config/outage");
        await turn(mode, text);
        void (async () => {
          if (mode !== "pass") await until(async () => await count("GET /v1/config/outage") > asked + 1);
          await direct.set(mode);
          await turn("pass");
        })();
      }
    } catch (e) { assert.equal(e.name, "AbortError"); }
    assert.deepEqual(seen, [undefined, 1, 2, 3, 4]);
  },

  async "names of all kinds"() {
    const c = connect(gate), names = ["jobs", "a/b", "/jobs/a", "a/", "a//b", ".", "..", "a/../b", "%2e%2e/%", "http://x/y?z=1#w", "ü ✓\u{1F600}", "a+b&c=d;e",
      "\\back\\slash", "line\nfeed\0", " ", "?", "#", new Uint8Array([0, 255, 254, 46, 47]), new TextEncoder().encode("plain")];
    for (const name of names) {
      const lease = await c.lock(name, { ttl: 60_000 }), data = Buffer.from(name);
      assert.equal((await lock(data)).num_owners, 1, name);
      assert.equal((await c.describe(name)).num_owners, 1, name);
      const held = await fetch(`${gateway}/v1/session/keepalive?holding=${[...data].map((b) => `%${b.toString(16).padStart(2, "0")}`).join("")}`,
        { method: "POST", headers: { "Signalbox-Session": lease.claim.session } });
      assert.equal(held.status, 200, name);
      await lease.release();
      assert.equal((await lock(data)).exists, false, name);
      if (typeof name === "string") {
        await c.config(`c${name}`).set(name);
        assert.equal(new TextDecoder().decode((await c.config(`c${name}`).get()).data), name);
        assert.deepEqual((await c.service(name).members()).endpoints, []);
      }
    }
    for (const address of ["localhost:7074", "127.0.0.1:7074", "", "ftp://x", "http://", "http://u:p@x", "http://x?y", "//x"]) {
      assert.throws(() => connect(address), (e) => e instanceof TypeError && e.message.includes("http://127.0.0.1:7074"), address);
    }
    assert.throws(() => connect([]), TypeError);
    for (const o of [{ ttl: NaN }, { wait: NaN }, { wait: -1 }, { wait: "5000" }, { hold: "x" }]) await assert.rejects(c.lock("x", o), RangeError);
    await assert.rejects(c.lock("x", { ttl: 30 }), /ttl is 30ms/); // somebody thought of seconds
  },

  async "a session that is given serves one lease"() {
    const c = connect(gate, { session: "a-given-session" }), busy = /serves one lease at a time/;
    const first = c.lock("jobs", { ttl: 60_000 });
    await assert.rejects(c.lock("jobs", { ttl: 60_000 }), busy); // it is on its way
    await assert.rejects(c.lock("other", { ttl: 60_000 }), busy);
    const lease = await first;
    await assert.rejects(c.lock("jobs", { ttl: 60_000 }), busy);
    await lease.release();
    assert.ok(await count(`DELETE /v1/locks/jobs?node=%2Fdefault&token=${lease.token}`) > 0);
    const second = await c.lock("jobs", { ttl: 60_000 });
    assert.ok(second.token > lease.token && second.held);
    await turn("away"); // what is not given back is not locked over
    await assert.rejects(c.close(), Unavailable);
    const again = connect(gateway, { session: "a-given-session" }), same = await again.lock("jobs", { ttl: 60_000 });
    assert.equal(same.token, second.token); // the session outlives its process
    await again.close();
    await free("jobs");
  },

  async "units of a limit are taken once"() {
    const c = connect([gate, gate], { timeout: 300 });
    for (const mode of ["late", "away", "hang"]) {
      await turn(mode);
      const before = await count("POST /v1/limits/");
      await assert.rejects(c.limit(mode).take(1), Unavailable);
      assert.equal(await count("POST /v1/limits/") - before, 1, mode);
    }
    await turn("away");
    const before = await count("POST /v1/limits/");
    await assert.rejects(c.limit("x").take(1, { retry: true }), Unavailable);
    assert.ok(await count("POST /v1/limits/") - before > 1);
    await turn("answer", json({ admitted: true, units: 1, waited_ms: 0 }));
    const nobody = `http://127.0.0.1:${rest[0]}`;
    for (let i = 0; i < 8; i++) assert.equal(await connect([nobody, gate]).limit("x").take(), true); // what was not sent is
  },

  async "fifty tasks"() {
    const [folder, rounds] = [rest[0], Number(rest[1])], c = connect(gate), tokens = [];
    await Promise.all(Array.from({ length: 50 }, async () => {
      for (let i = 0; i < rounds; i++) {
        const lease = await c.lock("shared", { ttl: 60_000, wait: 600_000 });
        const file = openSync(`${folder}/inside`, "wx"); // throws if anybody is inside, of any process
        tokens.push(lease.token);
        await new Promise((done) => setTimeout(done, 1));
        assert.ok(lease.held);
        closeSync(file);
        unlinkSync(`${folder}/inside`);
        await lease.release();
      }
    }));
    assert.deepEqual(tokens, tokens.toSorted((a, b) => a - b));
    assert.equal(new Set(tokens).size, 50 * rounds);
  },

  async "a program that forgets a lease"() {
    clearInterval(alive);
    globalThis.forgotten = await connect(gate).lock("forgotten", { ttl: 1_200_000 });
    console.log("main ends");
  },

  async "a program that is told to end"() {
    const connection = connect(gate);
    process.once("SIGTERM", () => connection.close().finally(() => process.exit(143))); // as the page says
    globalThis.held = await connection.lock("told", { ttl: 1_200_000 });
    console.log("holds");
    await new Promise(() => undefined);
  },
};

await cases[name]();
if (!name.startsWith("a program")) process.exit(0);
