// What the pages do beyond HTML: ages tick, and while the tab is visible a stream of events brings
// the changes of the page. Everything that arrives is text, and is put into the page as text.
"use strict";
(() => {
  const body = document.body;
  const banner = document.getElementById("live");
  const SVG = "http://www.w3.org/2000/svg";
  let ahead = Number(body.dataset.now) - Date.now(); // the console's clock against this one

  // Ages.
  const two = (n) => String(n).padStart(2, "0");
  const age = (ms) => {
    const s = Math.max(0, Math.floor(ms / 1000));
    if (s < 60) return s + "s";
    if (s < 3600) return Math.floor(s / 60) + "m " + two(s % 60) + "s";
    if (s < 86400) return Math.floor(s / 3600) + "h " + two(Math.floor((s % 3600) / 60)) + "m";
    return Math.floor(s / 86400) + "d " + two(Math.floor((s % 86400) / 3600)) + "h";
  };
  const timeText = (el) => { // since a moment, or until then
    const past = Date.now() + ahead - Number(el.dataset.at);
    return age("left" in el.dataset ? -past : past);
  };
  const setText = (el, text) => { if (el.textContent !== text) el.textContent = text; };
  const tick = () => {
    for (const el of document.querySelectorAll("time[data-at]")) setText(el, timeText(el));
  };
  setInterval(tick, 1000);

  // Elements of values, as the templates make them.
  const bar = (b) => {
    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("class", "bar");
    svg.setAttribute("viewBox", "0 0 1000 10");
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", b.l);
    for (const p of b.p || []) {
      const r = document.createElementNS(SVG, "rect");
      for (const [k, v] of [["class", p.k], ["x", p.x], ["y", 0], ["width", p.w], ["height", 10]]) r.setAttribute(k, v);
      if (p.t) r.append(Object.assign(document.createElementNS(SVG, "title"), { textContent: p.t }));
      svg.append(r);
    }
    return svg;
  };
  const trend = (points) => {
    const svg = document.createElementNS(SVG, "svg");
    const line = document.createElementNS(SVG, "polyline");
    for (const [k, v] of [["class", "trend"], ["viewBox", "0 0 300 40"], ["preserveAspectRatio", "none"], ["aria-hidden", "true"]]) svg.setAttribute(k, v);
    line.setAttribute("points", points);
    svg.append(line);
    return svg;
  };
  const isPath = (h) => Boolean(h) && h.startsWith("/") && !h.startsWith("//"); // of this console
  const fill = (el, c) => {
    let inner;
    if (c.a) {
      inner = document.createElement("time");
      inner.dataset.at = c.a;
      if (c.l) inner.dataset.left = "";
      inner.dateTime = inner.title = new Date(c.a).toISOString().replace(/\.\d+/, "");
      inner.textContent = timeText(inner);
    } else {
      inner = document.createTextNode(c.t || "");
    }
    if (isPath(c.h)) {
      const a = document.createElement("a");
      a.href = c.h;
      a.append(inner);
      inner = a;
    }
    const parts = [inner];
    if (c.n) {
      const small = document.createElement("small");
      small.textContent = c.n;
      parts.push(small);
    }
    if (c.b) parts.push(bar(c.b));
    if (c.s) parts.push(trend(c.s));
    const focused = el.contains(document.activeElement);
    el.className = c.k || "";
    el.replaceChildren(...parts);
    if (focused) el.querySelector("a")?.focus();
  };

  // Parts of a page.
  const updateRow = (tr, r, titles) => {
    tr.className = r.tone || "";
    r.cells.forEach((c, i) => {
      let el = tr.children[i];
      if (!el) {
        el = document.createElement(i ? "td" : "th");
        el.dataset.label = titles[i] || "";
        if (!i) el.scope = "row";
        tr.append(el);
      }
      const text = JSON.stringify(c);
      if (el.shown !== text) { // an element that the document came with is filled once more
        fill(el, c);
        el.shown = text;
      }
    });
  };
  const updateTable = (t) => {
    const table = document.getElementById(t.id);
    if (!table) return;
    const tbody = table.tBodies[0];
    const titles = [...table.tHead.rows[0].cells].map((th) => th.textContent);
    const rows = new Map([...tbody.rows].map((tr) => [tr.dataset.key, tr]));
    for (const r of t.set || []) {
      let tr = rows.get(r.key);
      const isNew = !tr;
      if (isNew) {
        tr = document.createElement("tr");
        tr.dataset.key = r.key;
        rows.set(r.key, tr);
      }
      updateRow(tr, r, titles);
      if (isNew && live) tr.classList.add("new");
    }
    if (t.order) {
      const keep = new Set(t.order);
      for (const [key, tr] of rows) if (!keep.has(key)) tr.remove();
      t.order.forEach((key, i) => {
        const tr = rows.get(key);
        if (tr && tbody.rows[i] !== tr) tbody.insertBefore(tr, tbody.rows[i] || null);
      });
    }
    table.hidden = tbody.rows.length === 0;
    const empty = document.querySelector(`[data-empty="${t.id}"]`);
    if (empty) {
      setText(empty, t.empty);
      empty.hidden = !table.hidden;
    }
    const count = document.querySelector(`[data-count="${t.id}"]`);
    if (count) setText(count, t.count);
    for (const which of ["first", "next"]) {
      const a = document.querySelector(`[data-${which}="${t.id}"]`);
      if (!a) continue;
      a.hidden = !isPath(t[which]);
      if (!a.hidden) a.href = t[which];
    }
  };
  const updateNotes = (notes) => {
    const el = document.getElementById("notes");
    if (el.shown === JSON.stringify(notes)) return;
    el.shown = JSON.stringify(notes);
    const paragraphs = (list) => list.map((n) => {
      const p = document.createElement("p");
      p.className = "note " + n.tone;
      p.textContent = n.text;
      return p;
    });
    const folded = notes.filter((n) => n.fold);
    const parts = paragraphs(notes.filter((n) => !n.fold));
    if (folded.length) {
      const details = document.createElement("details");
      const summary = document.createElement("summary");
      const before = el.querySelector("details");
      summary.textContent = folded.length + (folded.length === 1 ? " detail" : " details");
      details.open = Boolean(before?.open);
      details.append(summary, ...paragraphs(folded));
      parts.push(details);
    }
    el.replaceChildren(...parts);
  };
  const updateFacts = (facts) => {
    const list = document.getElementById("facts");
    const known = new Map([...list.children].map((d) => [d.dataset.key, d]));
    list.hidden = facts.length === 0;
    list.replaceChildren(...facts.map((f) => {
      let div = known.get(f.key);
      if (!div) {
        div = document.createElement("div");
        div.dataset.key = f.key;
        div.append(document.createElement("dt"), document.createElement("dd"));
      }
      setText(div.firstElementChild, f.label);
      const text = JSON.stringify(f.cell);
      if (div.shown !== text) fill(div.lastElementChild, f.cell);
      div.shown = text;
      return div;
    }));
  };
  const updateFigure = (figure) => {
    const picture = document.getElementById("figure");
    picture.hidden = !figure;
    picture.replaceChildren();
    if (!figure) return;
    const p = document.createElement("p");
    p.textContent = figure.text;
    picture.append(bar(figure.bar), p);
  };
  const update = (v) => {
    if (v.shape && v.shape !== body.dataset.shape) { // other buttons, tables or columns
      setTimeout(() => location.reload(), Math.max(0, 2000 - performance.now())); // at most every 2 s
      return;
    }
    if (v.notes) { // null: all three are as before
      updateNotes(v.notes);
      updateFigure(v.figure);
      updateFacts(v.facts || []);
    }
    for (const t of v.tables || []) updateTable(t);
  };

  // The stream.
  let source = null;
  let live = false;
  let lostAt = 0;
  let retry = 0;
  let timer = 0;
  const showLost = (why) => {
    live = false;
    body.dataset.state = "lost";
    if (!lostAt) lostAt = Date.now();
    banner.textContent = (why || "Not live: the console does not answer") + ", since " + new Date(lostAt).toLocaleTimeString() + ".";
    banner.hidden = false;
  };
  const showLive = () => {
    live = true;
    body.dataset.state = "live";
    lostAt = retry = 0;
    banner.hidden = true;
  };
  const close = () => {
    clearTimeout(timer);
    source?.close();
    source = null;
    live = false;
    delete body.dataset.state;
  };
  const open = () => {
    close();
    if (document.hidden || !body.dataset.live) return;
    source = new EventSource(body.dataset.live);
    const on = (name, f) => source.addEventListener(name, (e) => f(JSON.parse(e.data)));
    on("view", (v) => { // the whole page: what it has not is gone
      ahead = v.now - Date.now();
      if ("failed" in body.dataset) return location.reload();
      update(v);
      showLive();
    });
    on("change", update);
    on("lost", (e) => showLost("Not live: " + e.text)); // the page stays, and the stream goes on
    on("live", showLive);
    on("denied", (e) => { // what was shown may not be seen any more
      close();
      const p = document.createElement("p");
      p.className = "note bad";
      p.textContent = e.text;
      document.getElementById("main").replaceChildren(p);
      body.removeAttribute("data-live");
    });
    source.onerror = () => {
      close();
      showLost();
      timer = setTimeout(open, Math.min(10000, 500 * 2 ** retry++) * (0.5 + Math.random() / 2));
    };
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", (e) => { if (e.persisted) open(); });
  open();
})();
