// Takes turns at locks in many tasks, as holder.py does. Arguments: the client's folder, seconds, how many, how many locks,
// addresses.
const [, , folder, lasts, many, locks, ...addresses] = process.argv;
const { connect } = await import(`${folder}/signalbox.js`);
const connection = connect(addresses, { timeout: 3_000 });
const now = () => Number(process.hrtime.bigint());
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const over = now() + lasts * 1e9;

async function task(turn) {
  while (now() < over) {
    turn++;
    let lease;
    try {
      lease = await connection.lock(`turns-${turn % locks}`, { ttl: 5_000, wait: Math.round(500 + Math.random() * 7_500) });
    } catch {
      await sleep(50);
      continue;
    }
    const began = now(), end = began + [2, 50, 1_000, 6_000][Math.floor(Math.random() * 4)] * 1e6;
    let ended = began;
    for (let at = now(); lease.held; at = now()) {
      ended = at;
      if (at >= end) break;
      await sleep(2);
    }
    console.log(JSON.stringify({ name: lease.name, token: lease.token, began, ended }));
    await lease.release().catch(() => {});
  }
}
await Promise.all(Array.from({ length: Number(many) }, (_, i) => task(i)));
await connection.close().catch(() => {});
