/* Plays a recording: draws one job's lanes and leases as they were at a time, and moves that time.
   What is drawn was reckoned on the server (django_relay/replay/story.py) and lies in the page as
   JSON, with the words that are said here. Without this script the page is a list of what happened.
   No dependencies, no build. */
(() => {
  "use strict";
  const NS = "http://www.w3.org/2000/svg";
  const SIGNS = {
    sigkill: "M-6-6 6 6M6-6-6 6",
    sigstop: "M-3-6V6M3-6V6",
    sigcont: "M-4-6 6 0-4 6z",
    sigterm: "M-5-5H5V5H-5z",
    refused: "M-6 0a6 6 0 1 0 12 0a6 6 0 1 0-12 0M-4-4 4 4",
    succeeded: "M-6 0-2 4 6-5",
    failed: "M-5-5 5 5M5-5-5 5",
    cancelled: "M-6 0H6",
    over: "M-5-6H5L-5 6H5z",
  };
  const FINAL = { succeeded: "successful", failed: "failed", cancelled: "cancelled" };
  const BACK = new Set(["rescued", "released", "retried", "snoozed"]);
  let words = {};

  /* What the page's words say by this name, with the values filled in. */
  function say(name, values = {}) {
    return words[name].replace(/%\((\w+)\)s/g, (_, key) => values[key]);
  }

  function make(name, attributes, parent, text) {
    const node = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    parent?.append(node);
    return node;
  }

  function clock(ms) {
    const seconds = ms / 1000, two = (n) => String(n).padStart(2, "0");
    if (Math.abs(seconds) < 120) return say("seconds", { n: seconds.toFixed(3) });
    const whole = Math.round(seconds), minutes = Math.floor(whole / 60), hours = Math.floor(minutes / 60);
    if (minutes < 120) return say("minutes", { n: minutes, m: two(whole - 60 * minutes) });
    if (hours < 48) return say("hours", { n: hours, m: two(minutes - 60 * hours) });
    return say("days", { n: Math.floor(hours / 24), m: hours - 24 * Math.floor(hours / 24) });
  }

  /* A name that fits: what tells names apart stands at their ends. */
  function shortened(name, room) {
    const half = (room - 1) / 2;
    return name.length <= room ? name : `${name.slice(0, Math.floor(half))}…${name.slice(-Math.ceil(half))}`;
  }

  /* The index of the last row whose first entry is not above the value, or -1. */
  function last(rows, value, column = 0) {
    let low = 0, high = rows.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (rows[middle][column] <= value) low = middle + 1; else high = middle;
    }
    return low - 1;
  }

  function between(rows, value, from, to) {
    const at = Math.min(Math.max(last(rows, value, from), 0), rows.length - 2);
    const [a, b] = [rows[at], rows[at + 1]];
    const share = b[from] === a[from] ? 0 : (value - a[from]) / (b[from] - a[from]);
    return a[to] + Math.min(Math.max(share, 0), 1) * (b[to] - a[to]);
  }

  /* A job's story with names in place of columns. */
  function read(raw) {
    const beats = raw.beats.map(([ms, kind, tone, title, note, lease, lane]) =>
      ({ ms, kind, tone, title, note, lease, lane }));
    const leases = raw.leases.map(([letter, hue, lane, start, until, ended, silent, ends]) =>
      ({ letter, hue, lane, start, until, ended, silent, ends }));
    return { ...raw, beats, leases, length: raw.scale.at(-1)[1], reach: between(raw.scale, raw.end, 0, 1) };
  }

  /* The end that a lease had at a time, as far as it was seen. */
  function promised(lease, ms) {
    const at = last(lease.ends, ms);
    return at < 0 ? null : lease.ends[at][1];
  }

  class Stage {
    constructor(holder, story) {
      this.holder = holder;
      this.story = story;
      this.layout();
    }

    layout() {
      const { story, holder } = this;
      this.width = Math.max(holder.clientWidth, 280);
      this.narrow = this.width < 560;
      const longest = Math.max(14, ...story.lanes.map((name) => name.length));
      this.left = this.narrow ? 8 : Math.min(24 + longest * 7.4, 200);
      this.right = this.width - (this.narrow ? 10 : 18);
      const label = this.narrow ? 18 : 0, height = this.narrow ? 48 : 72;
      const rows = [say("queue"), ...story.lanes];
      this.rows = rows.map((name, place) => ({ name, y: 30 + place * (height + label) + label, height }));
      this.bottom = this.rows.at(-1).y + height;
      this.height = this.bottom + 30;
      this.painters = [];
      this.svg = make("svg", {
        viewBox: `0 0 ${this.width} ${this.height}`, class: "replay-svg", role: "img",
        "aria-label": say("lanes", { n: story.lanes.length, job: story.id }),
      });
      this.grounds();
      this.waits();
      story.leases.forEach((lease) => this.lease(lease));
      story.beats.forEach((beat) => this.sign(beat));
      this.playhead();
      holder.replaceChildren(this.svg);
    }

    x(ms) {
      return this.left + (between(this.story.scale, ms, 0, 1) / this.story.length) * (this.right - this.left);
    }

    middle(place) {
      const row = this.rows[place];
      return row.y + row.height / 2;
    }

    grounds() {
      const defs = make("defs", {}, this.svg);
      const hatch = make("pattern", { id: "replay-hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, defs);
      make("rect", { width: 6, height: 6, class: "replay-hatch-ground" }, hatch);
      make("line", { x1: 0, x2: 0, y1: 0, y2: 6, class: "replay-hatch-line" }, hatch);
      this.rows.forEach((row, place) => {
        make("rect", { x: this.left, y: row.y + 4, width: this.right - this.left, height: row.height - 8, rx: 4, class: place ? "replay-lane" : "replay-lane replay-queue" }, this.svg);
        const text = { class: "replay-lane-name", x: this.narrow ? this.left : 0, y: this.narrow ? row.y - 2 : row.y + row.height / 2 + 4 };
        const room = Math.floor((this.narrow ? this.right - this.left : this.left - 10) / 7);
        const name = make("text", text, this.svg, shortened(row.name, room));
        if (row.name.length > room) make("title", {}, name, row.name);
      });
      this.axis();
    }

    axis() {
      const { scale } = this.story;
      make("line", { x1: this.left, x2: this.right, y1: this.bottom + 4, y2: this.bottom + 4, class: "replay-axis" }, this.svg);
      const room = this.narrow ? 58 : 84, wanted = Math.max(2, Math.floor((this.right - this.left) / room));
      const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 30000, 60000];
      const step = steps.find((each) => this.story.length / each <= wanted) ?? this.story.length / wanted;
      const cut = scale.some((pair, n) => n && pair[0] - scale[n - 1][0] > 1.01 * (pair[1] - scale[n - 1][1]));
      let drawn = -Infinity;
      for (let place = 0; place <= this.story.length; place += step) {
        const ms = between(scale, place, 1, 0), at = this.left + (place / this.story.length) * (this.right - this.left);
        const told = cut || step % 100 ? clock(ms) : say("seconds", { n: ms / 1000 }), width = told.length * 6;
        const anchor = at > this.right - width / 2 ? "end" : at < this.left + width / 2 ? "start" : "middle";
        const start = at - { start: 0, middle: width / 2, end: width }[anchor];
        if (start < drawn + 8) continue;
        drawn = start + width;
        make("line", { x1: at, x2: at, y1: this.bottom + 4, y2: this.bottom + 9, class: "replay-axis" }, this.svg);
        make("text", { x: at, y: this.bottom + 22, "text-anchor": anchor, class: "replay-tick" }, this.svg, told);
      }
      scale.forEach((pair, n) => {
        if (n && pair[0] - scale[n - 1][0] > 1.01 * (pair[1] - scale[n - 1][1])) {
          const at = this.left + ((pair[1] + scale[n - 1][1]) / 2 / this.story.length) * (this.right - this.left);
          make("path", { d: `M${at - 5} ${this.bottom + 9}l4-10M${at + 1} ${this.bottom + 9}l4-10`, class: "replay-cut" }, this.svg);
        }
      });
    }

    waits() {
      const y = this.middle(0) - 9;
      for (const [start, until, state] of this.story.waits) {
        const x = this.x(start), group = make("g", { class: `replay-wait replay-wait-${state}` }, this.svg);
        const bar = make("rect", { x, y, height: 18, rx: 3 }, group);
        const full = this.x(until ?? this.story.end) - x;
        const text = full > 60 ? make("text", { x: x + 7, y: y + 13 }, group, state) : null;
        this.painters.push((ms) => {
          group.toggleAttribute("hidden", ms < start);
          const width = Math.max(this.x(Math.min(ms, until ?? ms)) - x, 3);
          bar.setAttribute("width", width);
          text?.toggleAttribute("hidden", width < 56);
        });
      }
    }

    /* A line between the queue and a lane: the job is taken, or given back. */
    move(ms, lane, kind) {
      const x = this.x(ms), from = this.middle(0) + 9, to = this.middle(lane + 1) - 15;
      const line = make("path", { d: `M${x} ${from}V${to}`, class: `replay-move replay-move-${kind}` }, this.svg);
      this.painters.push((now) => line.toggleAttribute("hidden", now < ms));
    }

    lease(lease) {
      const { start, until, silent, letter, hue } = lease;
      this.move(start, lease.lane, "taken");
      if (BACK.has(lease.ended)) this.move(until, lease.lane, "back");
      const y = this.middle(lease.lane + 1) - 15, x = this.x(start);
      const group = make("g", { class: "replay-lease", "data-lease": hue }, this.svg);
      const promise = make("rect", { y, height: 30, rx: 4, class: "replay-promise" }, group);
      const held = make("rect", { x, y, height: 30, rx: 4, class: "replay-held" }, group);
      const quiet = make("rect", { y, height: 30, class: "replay-silent" }, group);
      const flag = make("path", { class: "replay-flag" }, group);
      const told = make("text", { y: y - 5, class: "replay-until" }, group);
      const renewals = lease.ends.slice(1).map(([seen]) => ({ seen, line: make("path", { d: `M${this.x(seen)} ${y + 21}v6`, class: "replay-renewal" }, group) }));
      const next = this.story.leases.find((each) => each.lane === lease.lane && each.start > start);
      const wide = 11 + 9 * letter.length;
      if (!next || this.x(next.start) > x + wide + 8) {
        make("rect", { x: x + 4, y: y + 5, width: wide, height: 20, rx: 4, class: "replay-badge" }, group);
        make("text", { x: x + 4 + wide / 2, y: y + 20, "text-anchor": "middle", class: "replay-badge-letter" }, group, letter);
      }
      this.painters.push((ms) => {
        group.toggleAttribute("hidden", ms < start);
        if (ms < start) return;
        const now = Math.min(ms, until ?? ms), kept = Math.min(now, silent ?? now);
        held.setAttribute("width", Math.max(this.x(kept) - x, 3));
        const still = silent !== null && now > silent;
        quiet.toggleAttribute("hidden", !still);
        if (still) {
          quiet.setAttribute("x", this.x(silent));
          quiet.setAttribute("width", Math.max(this.x(now) - this.x(silent), 1));
        }
        for (const { seen, line } of renewals) line.toggleAttribute("hidden", seen > ms);
        const end = until === null || ms < until ? promised(lease, ms) : null;
        for (const node of [promise, flag, told]) node.toggleAttribute("hidden", end === null);
        if (end === null) return;
        const from = this.x(now), to = this.x(Math.max(end, now)), at = this.x(end);
        promise.setAttribute("x", from);
        promise.setAttribute("width", Math.max(to - from, 0));
        flag.setAttribute("d", `M${at} ${y - 3}v36`);
        const over = end <= ms;
        told.setAttribute("x", Math.min(over ? at - 4 : at, this.right - 2));
        told.setAttribute("text-anchor", over || at > this.right - 70 ? "end" : "middle");
        told.textContent = over ? say("over") : say("until", { time: clock(end) });
      });
    }

    sign(beat) {
      if (beat.lane === null || beat.lane === undefined) {
        if (SIGNS[beat.kind] || beat.tone === "odd") this.everywhere(beat);
        return;
      }
      const shape = SIGNS[beat.kind];
      if (!shape || beat.kind === "over") return;
      const x = this.x(beat.ms), y = this.middle(beat.lane + 1);
      const group = make("g", { class: `replay-sign replay-sign-${beat.kind}`, transform: `translate(${x} ${y})` }, this.svg);
      make("circle", { r: 12, class: "replay-sign-ground" }, group);
      make("path", { d: shape, class: "replay-sign-shape" }, group);
      if (beat.kind.startsWith("sig") || beat.kind === "refused") {
        const name = beat.kind === "refused" ? say("refused", { lease: beat.lease ?? "" }) : beat.kind.toUpperCase();
        const anchor = x > this.right - 40 ? "end" : "middle";
        make("text", { y: 26, x: anchor === "end" ? 12 : 0, "text-anchor": anchor, class: "replay-sign-name" }, group, name);
      }
      this.painters.push((ms) => group.toggleAttribute("hidden", ms < beat.ms));
      if (FINAL[beat.kind]) this.outcome(beat, x);
    }

    outcome(beat, x) {
      const group = make("g", { class: `replay-outcome replay-outcome-${beat.kind}` }, this.svg);
      const width = 78, left = Math.min(x, this.right - width), y = this.middle(0) - 9;
      make("rect", { x: left, y, width, height: 18, rx: 3 }, group);
      make("text", { x: left + width / 2, y: y + 13, "text-anchor": "middle" }, group, FINAL[beat.kind]);
      this.painters.push((ms) => group.toggleAttribute("hidden", ms < beat.ms));
    }

    everywhere(beat) {
      const x = this.x(beat.ms);
      const group = make("g", { class: "replay-everywhere" }, this.svg);
      make("path", { d: `M${x} 24V${this.bottom}` }, group);
      this.painters.push((ms) => group.toggleAttribute("hidden", ms < beat.ms));
    }

    playhead() {
      const group = make("g", { class: "replay-head-line" }, this.svg);
      const line = make("path", {}, group), text = make("text", { y: 14 }, group);
      this.painters.push((ms) => {
        const x = this.x(ms);
        line.setAttribute("d", `M${x} 20V${this.bottom + 4}`);
        text.setAttribute("x", Math.min(Math.max(x, this.left + 24), this.right - 24));
        text.setAttribute("text-anchor", "middle");
        text.textContent = clock(ms);
      });
    }

    paint(ms) {
      for (const paint of this.painters) paint(ms);
    }
  }

  class Player {
    constructor(root, stories) {
      const find = (name) => root.querySelector(`[data-replay-${name}]`);
      this.stories = stories.map(read);
      this.lists = [...root.querySelectorAll("[data-replay-list]")];
      this.parts = {};
      for (const name of ["player", "clock", "owner", "state", "caption", "stage", "play", "back", "step", "scrub", "speed", "choose"])
        this.parts[name] = find(name);
      this.still = matchMedia("(prefers-reduced-motion: reduce)");
      this.parts.player.hidden = false;
      this.listen(root);
      this.choose(0);
    }

    listen(root) {
      const { play, back, step, scrub, choose, stage } = this.parts;
      play.addEventListener("click", () => (this.playing ? this.pause() : this.play()));
      back.addEventListener("click", () => this.stepTo(this.at - 1));
      step.addEventListener("click", () => this.stepTo(this.at + 1));
      scrub.addEventListener("input", () => { this.pause(); this.go(between(this.story.scale, Number(scrub.value), 1, 0)); });
      choose.querySelector("select").addEventListener("change", (event) => this.choose(Number(event.target.value)));
      root.addEventListener("keydown", (event) => this.key(event));
      this.lists.forEach((list) => list.querySelectorAll("li").forEach((line, place) => this.button(line, place)));
      let width = 0;
      new ResizeObserver(() => {
        if (stage.clientWidth === width) return;
        width = stage.clientWidth;
        this.stage.layout();
        this.stage.paint(this.ms);
      }).observe(stage);
      addEventListener("beforeprint", () => { this.kept = [this.ms, this.at]; this.pause(); this.go(this.story.end, this.story.beats.length - 1); });
      addEventListener("afterprint", () => this.kept && this.go(...this.kept));
    }

    button(line, place) {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...line.childNodes);
      line.append(button);
      button.addEventListener("click", () => this.stepTo(place));
    }

    key(event) {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const field = event.target.closest("input, select, textarea");
      const acts = {
        ArrowLeft: () => this.stepTo(this.at - 1),
        ArrowRight: () => this.stepTo(this.at + 1),
        Home: () => this.stepTo(0),
        End: () => this.stepTo(this.story.beats.length - 1),
      };
      if (!event.target.closest("button")) acts[" "] = () => (this.playing ? this.pause() : this.play());
      if (field || !acts[event.key]) return;
      event.preventDefault();
      acts[event.key]();
    }

    choose(number) {
      this.pause();
      this.story = this.stories[number];
      this.lists.forEach((list, place) => { list.hidden = place !== number; });
      this.list = this.lists[number];
      this.lines = [...this.list.querySelectorAll("li")];
      this.parts.scrub.max = Math.round(this.story.reach);
      this.stage = new Stage(this.parts.stage, this.story);
      this.at = -1;
      // The whole story at first, and the list from its top; play begins it anew.
      this.begun = false;
      this.go(this.story.end, this.story.beats.length - 1);
      this.begun = true;
    }

    play() {
      if (this.ms >= this.story.end - 0.5) this.go(this.story.scale[0][0]);
      this.playing = true;
      this.shown();
      if (this.still.matches) { this.hop(); return; }
      let before = performance.now(), place = between(this.story.scale, this.ms, 0, 1);
      const frame = (now) => {
        if (!this.playing) return;
        place += (now - before) * Number(this.parts.speed.value);
        before = now;
        const over = place >= this.story.reach;
        this.go(over ? this.story.end : between(this.story.scale, place, 1, 0));
        if (over) this.pause(); else this.frame = requestAnimationFrame(frame);
      };
      this.frame = requestAnimationFrame(frame);
    }

    /* With reduced motion: from event to event, without movement in between. */
    hop() {
      this.timer = setTimeout(() => {
        if (!this.playing) return;
        const next = this.at + 1;
        if (next >= this.story.beats.length) { this.pause(); return; }
        this.go(this.story.beats[next].ms, next);
        this.hop();
      }, 1200 / Number(this.parts.speed.value));
    }

    pause() {
      this.playing = false;
      cancelAnimationFrame(this.frame);
      clearTimeout(this.timer);
      this.shown();
    }

    shown() {
      this.parts.play.classList.toggle("replay-playing", this.playing);
      this.parts.play.querySelector("span").textContent = say(this.playing ? "pause" : "play");
    }

    stepTo(place) {
      const { beats } = this.story;
      if (!beats.length) return;
      const wanted = Math.min(Math.max(place, 0), beats.length - 1);
      this.pause();
      this.go(beats[wanted].ms, wanted);
    }

    go(ms, place) {
      this.ms = ms;
      const at = place ?? last(this.story.beats, ms, "ms");
      this.stage.paint(ms);
      const { scrub } = this.parts, beat = this.story.beats[at];
      scrub.value = Math.round(between(this.story.scale, ms, 0, 1));
      scrub.setAttribute("aria-valuetext", `${clock(ms)}${beat ? `, ${beat.title}` : ""}`);
      this.parts.clock.textContent = clock(ms);
      this.owner(ms);
      if (at !== this.at) this.arrive(at, beat);
    }

    owner(ms) {
      const lease = this.story.leases.find((each) => each.start <= ms && (each.until === null || ms < each.until));
      const { owner, state } = this.parts, at = last(this.story.states, ms);
      state.textContent = at < 0 ? "" : this.story.states[at][1];
      let how = "nobody";
      if (lease) {
        const end = promised(lease, ms);
        if (end !== null && ms >= end) how = "expired";
        else how = lease.silent !== null && ms >= lease.silent ? "silent" : "valid";
      }
      const said = say(how, { lease: lease?.letter });
      if (owner.textContent !== said) owner.textContent = said;
      owner.dataset.lease = lease?.hue ?? "";
    }

    arrive(at, beat) {
      this.lines[this.at]?.firstElementChild.removeAttribute("aria-current");
      this.lines.forEach((line, place) => line.classList.toggle("replay-ahead", place > at));
      this.at = at;
      this.parts.caption.textContent = beat ? `${beat.title}. ${beat.note}${!beat.note || beat.note.endsWith(".") ? "" : "."}` : say("before");
      const line = this.lines[at];
      if (!line) return;
      line.firstElementChild.setAttribute("aria-current", "step");
      const frame = line.parentElement;
      if (frame.scrollHeight > frame.clientHeight && this.begun)
        frame.scrollTop = line.offsetTop + line.clientHeight / 2 - frame.clientHeight / 2;
    }
  }

  for (const root of document.querySelectorAll("[data-replay]")) {
    try {
      const data = JSON.parse(root.querySelector("#replay-data").textContent);
      words = data.words;
      if (data.stories.length) new Player(root, data.stories);
    } catch (error) {
      const trouble = root.querySelector("[data-replay-trouble]");
      trouble.hidden = false;
      root.querySelector("[data-replay-player]").hidden = true;
    }
  }
})();
