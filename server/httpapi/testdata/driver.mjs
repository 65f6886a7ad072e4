// Carries out commands of the tests, one a line, with the client of TypeScript.
import { createInterface } from "node:readline";

const signalbox = await import(`${process.argv[2]}/signalbox.js`);
const connections = {}, leases = {};

async function act(c) {
  if (c.do === "connect") {
    const options = { timeout: c.timeout ?? 10_000 };
    if (c.session) options.session = c.session;
    connections[c.as] = signalbox.connect(c.addresses, options);
    return {};
  }
  if (c.lease) {
    const lease = leases[c.lease];
    if (c.do === "release") await lease.release();
    if (c.do === "lost" && !lease.signal.aborted) {
      await new Promise((done) => {
        lease.signal.addEventListener("abort", done);
        setTimeout(done, c.wait);
      });
    }
    return { held: lease.held, lost: lease.signal.aborted, cause: lease.signal.reason?.name ?? "" };
  }
  const connection = connections[c.with];
  switch (c.do) {
    case "lock":
    case "semaphore": {
      const lease = leases[c.as] = await connection[c.do](c.name, {
        ttl: c.ttl, wait: c.wait, holder: c.holder, count: c.count, limit: c.limit,
      });
      return { token: lease.token, held: lease.held };
    }
    case "why":
      return { lines: await connection.why(c.name) };
    case "get": {
      const value = await connection.config(c.name).get();
      return { data: new TextDecoder().decode(value.data), version: value.version };
    }
    case "set":
      return { version: await connection.config(c.name).set(c.data, c.version) };
    case "watch": {
      const lines = [];
      for await (const value of connection.config(c.name).watch()) {
        lines.push(new TextDecoder().decode(value.data));
        if (lines.length === 2) return { lines };
        await connection.config(c.name).set("next");
      }
      break;
    }
    case "take":
      return { held: await connection.limit(c.name).take(c.units) };
    case "members":
      return { lines: (await connection.service(c.name).members()).endpoints.map((e) => e.addr) };
  }
  await connection.close();
  return {};
}

for await (const line of createInterface({ input: process.stdin })) {
  const c = JSON.parse(line);
  act(c).catch((e) => ({ error: e.name, holders: e.holders?.length ?? 0, detail: e.stack })).then((a) => console.log(JSON.stringify({ id: c.id, ...a })));
}
process.exit(0);
