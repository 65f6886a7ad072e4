// Carries out commands of the tests, one a line, with the client of TypeScript. clients_test.go has the words.
import { createInterface } from "node:readline";

// The client's timers, also those that keep no program alive. The platform has others.
const timers = new Map(), { setTimeout: set, clearTimeout: clear } = globalThis;
globalThis.setTimeout = (f, ms, ...args) => {
  const timer = set(() => { timers.delete(timer); f(...args); }, ms);
  if (new Error().stack.includes("signalbox.js")) timers.set(timer, `${f}`);
  return timer;
};
globalThis.clearTimeout = (timer) => { timers.delete(timer); clear(timer); };
const signalbox = await import(`${process.argv[2]}/signalbox.js`);
const connections = {}, leases = {}, cancels = {};
const say = (answer) => console.log(JSON.stringify(answer));
const pause = (ms) => new Promise((done) => set(done, ms));

/** Locks a name in many tasks at once, again and again. */
async function crowd(c, connection) {
  const spans = [], errors = {}, counts = Array(c.many).fill(0);
  await Promise.all(counts.map(async (_, i) => {
    for (let round = 0; round < c.rounds; round++) {
      try {
        const lease = await connection.lock(c.name, { ttl: c.ttl, wait: c.wait });
        const began = process.hrtime.bigint();
        await pause(1);
        const ended = process.hrtime.bigint();
        if (lease.held) {
          spans.push([lease.token, Number(began), Number(ended)]);
          counts[i]++;
        }
        await lease.release();
      } catch (e) {
        errors[e.name] = (errors[e.name] ?? 0) + 1;
      }
    }
  }));
  return { spans, least: Math.min(...counts), errors };
}

async function act(c) {
  if (c.do === "connect") {
    const options = { timeout: c.timeout ?? 10_000 };
    if (c.session) options.session = c.session;
    connections[c.as] = signalbox.connect(c.addresses, options);
    return {};
  }
  if (c.do === "cancel") return cancels[c.lease].abort();
  if (c.do === "left") return { lines: [...timers.values()] };
  if (c.lease) {
    const lease = leases[c.lease];
    if (c.do === "release") await lease.release();
    if (c.do === "lost" && !lease.signal.aborted) {
      await Promise.race([new Promise((done) => lease.signal.addEventListener("abort", done)), pause(c.wait)]);
    }
    const { reason } = lease.signal, { cause: loss = "", since_ms: since = 0 } = reason?.loss ?? {};
    return { held: lease.held, lost: lease.signal.aborted, cause: reason?.name ?? "", loss, since };
  }
  const connection = connections[c.with], name = c.hex === undefined ? c.name : nameOf(Buffer.from(c.hex, "hex"));
  switch (c.do) {
    case "lock":
    case "semaphore": {
      cancels[c.as] = new AbortController();
      const lease = leases[c.as] = await connection[c.do](name, {
        ttl: c.ttl, wait: c.wait, holder: c.holder, count: c.count, limit: c.limit, signal: cancels[c.as].signal,
      });
      return { token: lease.token, held: lease.held };
    }
    case "crowd":
      return crowd(c, connection);
    case "why":
      return { lines: await connection.why(name) };
    case "get": {
      const value = await connection.config(name).get();
      return { data: new TextDecoder().decode(value.data), version: value.version };
    }
    case "set":
      return { version: await connection.config(name).set(c.data, c.version) };
    case "watch":
      for await (const value of connection.config(name).watch()) {
        const data = new TextDecoder().decode(value?.data);
        say({ id: c.id, more: true, data, version: value?.version ?? 0 });
        if (data === c.until) return { data };
      }
      break;
    case "take":
      return { held: await connection.limit(name).take(c.units, { retry: c.retry ?? false }) };
    case "members":
      return { lines: (await connection.service(name).members()).endpoints.map((e) => e.addr) };
  }
  await connection.close();
  return {};
}

/** The text of a name of bytes, if it is text: then programs give it as such. */
function nameOf(bytes) {
  const text = bytes.toString();
  return Buffer.from(text).equals(bytes) ? text : bytes;
}

/** What a command says that has failed. JavaScript has no error of its own for a time that is over. */
function failed(c, e) {
  return {
    error: e.name === "AbortError" || e.code === "closed" ? "Cancelled" : e.name, detail: e.message,
    holders: e.holders?.length ?? 0, caused: e.cause !== undefined, inTime: e.name === "NotAcquired" && c.wait > 0,
  };
}

for await (const line of createInterface({ input: process.stdin })) {
  const c = JSON.parse(line);
  act(c).catch((e) => failed(c, e)).then((a) => say({ id: c.id, ...a }));
}
process.exit(0);
