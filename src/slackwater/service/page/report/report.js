/* The plots of a report: the tide line, and one band chart for each query. Everything it needs is in the file. */
(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const FONT = "10.5px 'Instrument Sans', system-ui, sans-serif";
  const PRINTED = { tide: 680, card: 300 };
  const drawn = [];
  let printing = false;

  const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
  const clock = (at) => new Date(at * 1000).toISOString().slice(11, 19);
  const number = (value) => {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-4 || size >= 1e15)) return value.toPrecision(3);
    const whole = size >= 1 ? Math.floor(Math.log10(size)) + 1 : 0;
    const decimals = Number.isInteger(value) ? 0 : Math.max(0, 6 - Math.max(1, whole));
    return value.toLocaleString("en", { maximumFractionDigits: decimals }).replace("-", "−");
  };
  const tick = (value) => {
    const size = Math.abs(value);
    if (size < 1) return String(Number(value.toPrecision(2))).replace("-", "−");
    for (const [unit, least] of [["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
      if (size >= least) return `${Number((value / least).toPrecision(4))}${unit}`.replace("-", "−");
    }
    return String(Number(value.toPrecision(4))).replace("-", "−");
  };
  const axis = (more) => ({
    stroke: () => colour("quiet"),
    font: FONT,
    gap: 5,
    grid: { stroke: () => colour("line"), width: 1 },
    ticks: { show: false },
    values: (_chart, splits) => splits.map(tick),
    ...more,
  });
  /* the day where a plot is longer than one */
  const times = (chart, splits) => {
    const { min, max } = chart.scales.x;
    const text = (at) => new Date(at * 1000).toISOString();
    if (max - min > 2 * 86400) return splits.map((at) => text(at).slice(5, 10));
    return splits.map((at) => (max - min > 4 * 3600 ? text(at).slice(11, 16) : text(at).slice(11, 19)));
  };

  const common = (place) => ({
    width: Math.max(100, place.clientWidth),
    height: place.clientHeight,
    padding: [6, 4, 0, 0],
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 6, width: 0 } },
    tzDate: (at) => uPlot.tzDate(new Date(at * 1e3), "Etc/UTC"),
  });

  function keep(place, kind, chart) {
    drawn.push({ place, kind, chart });
    new ResizeObserver(() => {
      if (printing || !place.clientWidth || place.clientWidth === chart.width) return;
      chart.setSize({ width: place.clientWidth, height: place.clientHeight });
    }).observe(place);
  }

  function water(chart) {
    const { ctx, bbox } = chart;
    if (!bbox.height) return colour("water-top");
    const fill = ctx.createLinearGradient(0, bbox.top, 0, bbox.top + bbox.height);
    fill.addColorStop(0, colour("water-top"));
    fill.addColorStop(1, colour("water-deep"));
    return fill;
  }

  function tide() {
    const { at, load, kept, capacity, level, rows } = data.tide;
    const none = { points: { show: false } };
    const measured = load.some((value) => value !== null);
    const main = document.querySelector(".tide-chart");
    const sync = { key: "tide" };
    const ranges = (least) => (_chart, _low, most) => [0, Math.max(least, most ?? 0) * 1.12];
    keep(main, "tide", new uPlot(
      {
        ...common(main),
        padding: [6, 4, 8, 0],
        cursor: { ...common(main).cursor, sync },
        scales: { x: { time: true }, y: { range: ranges(1e-6) } },
        axes: [axis({ show: false }), axis({ size: 50, space: 34 })],
        series: measured
          ? [
              {},
              { ...none, stroke: () => colour("shed-line"), width: 1.5 },
              { ...none, stroke: () => colour("water"), width: 1.5, fill: water },
              { ...none, stroke: () => colour("ink"), width: 1.25, dash: [7, 5] },
            ]
          : [{}, { ...none, stroke: () => colour("water"), width: 1.5, fill: water }],
        bands: measured ? [{ series: [1, 2], fill: () => colour("shed") }] : [],
      },
      measured ? [at, load, kept, capacity] : [at, rows],
      main,
    ));
    const below = document.querySelector(".level-chart");
    keep(below, "tide", new uPlot(
      {
        ...common(below),
        cursor: { ...common(below).cursor, sync },
        scales: { x: { time: true }, y: { range: ranges(1) } },
        axes: [
          axis({ size: 20, space: 90, values: times, grid: { show: false } }),
          axis({ size: 50, splits: (chart) => (chart.scales.y.max > 2.4 ? [0, Math.floor(chart.scales.y.max)] : [0, 1]) }),
        ],
        series: [{}, { ...none, stroke: () => colour("level"), width: 1.75, fill: () => colour("level-fill") }],
      },
      [at, level],
      below,
    ));
  }

  /* Columns of a band chart; a blank before a gap, and the line joined between what was measured and modelled. */
  function columnsOf(query) {
    const out = { at: [], low: [], high: [], solid: [], dashed: [], index: [], suspended: [] };
    const blank = (at) => {
      out.at.push(at);
      out.index.push(-1);
      for (const name of ["low", "high", "solid", "dashed"]) out[name].push(null);
    };
    for (let i = 0; i < query.at.length; i += 1) {
      const [at, before] = [query.at[i], query.at[i - 1]];
      if (query.gap[i] && i) blank((before + at) / 2);
      const how = data.hows[query.how[i]];
      if (how === "suspended") {
        const width = query.slide ?? 1;
        out.suspended.push([i && at - before < 1.5 * width ? before : at - width, at]);
        blank(at);
        continue;
      }
      const modelled = how === "modelled";
      const place = out.at.length;
      out.at.push(at);
      out.index.push(i);
      out.low.push(query.low[i]);
      out.high.push(query.high[i]);
      out.solid.push(modelled ? null : query.value[i]);
      out.dashed.push(modelled ? query.value[i] : null);
      if (place && modelled && out.solid[place - 1] !== null) out.dashed[place - 1] = out.solid[place - 1];
      if (place && !modelled && out.dashed[place - 1] !== null && out.solid[place - 1] === null) {
        out.dashed[place] = query.value[i];
      }
    }
    return out;
  }

  function band(query) {
    const place = document.getElementById(query.id);
    const of = place.previousElementSibling;
    const words = of.textContent;
    const columns = columnsOf(query);
    const paths = query.kind === "current" ? uPlot.paths.stepped({ align: 1 }) : uPlot.paths.linear();
    const none = { points: { show: false }, paths };
    const edge = { ...none, stroke: () => colour("band-edge"), width: 1 };
    const tell = (chart) => {
      const i = columns.index[chart.cursor.idx] ?? -1;
      of.textContent = i < 0 ? words : pointText(query, i);
      of.classList.toggle("hovered", i >= 0);
    };
    keep(place, "card", new uPlot(
      {
        ...common(place),
        scales: { x: { time: true, range: spread }, y: { range: roomy } },
        axes: [axis({ size: 19, space: 74, values: times, grid: { show: false } }), axis({ size: 46, space: 30, side: 1 })],
        series: [
          {},
          edge,
          edge,
          { ...none, stroke: () => colour("water"), width: 1.75 },
          { ...none, stroke: () => colour("water"), width: 1.5, dash: [4, 4] },
        ],
        bands: [{ series: [2, 1], fill: () => colour("band") }],
        hooks: {
          drawClear: [(chart) => hatch(chart, columns.suspended)],
          draw: [dots],
          setCursor: [tell],
        },
      },
      [columns.at, columns.low, columns.high, columns.solid, columns.dashed],
      place,
    ));
  }

  function pointText(query, i) {
    const [value, low, high] = [query.value[i], query.low[i], query.high[i]];
    const interval = low === null || (low === value && high === value) ? "" : ` [${number(low)}, ${number(high)}]`;
    const kept = query.rate[i] < 1 ? `, ${Number((query.rate[i] * 100).toPrecision(3))} % kept` : "";
    return `${clock(query.at[i])}  ${number(value)}${interval}  ${data.hows[query.how[i]]}${kept}`;
  }

  /* One point needs some room to stand in. */
  const spread = (_chart, least, most) => (most > least ? [least, most] : [least - 30, least + 30]);

  function roomy(_chart, least, most) {
    if (least === null || most === null) return [0, 1];
    const room = most > least ? (most - least) * 0.14 : Math.abs(most) * 0.1 || 1;
    return [least - room, most + room];
  }

  function hatch(chart, stretches) {
    const { ctx, bbox } = chart;
    for (const [from, to] of stretches) {
      const left = Math.max(bbox.left, chart.valToPos(from, "x", true));
      const right = Math.min(bbox.left + bbox.width, chart.valToPos(to, "x", true));
      if (right <= left) continue;
      ctx.save();
      ctx.beginPath();
      ctx.rect(left, bbox.top, right - left, bbox.height);
      ctx.clip();
      ctx.strokeStyle = colour("suspended");
      ctx.lineWidth = devicePixelRatio;
      const step = 7 * devicePixelRatio;
      ctx.beginPath();
      for (let x = Math.floor((left - bbox.height) / step) * step; x < right; x += step) {
        ctx.moveTo(x, bbox.top + bbox.height);
        ctx.lineTo(x + bbox.height, bbox.top);
      }
      ctx.stroke();
      ctx.restore();
    }
  }

  /* An answer with a gap on both sides is a dot: a line needs two. */
  function dots(chart) {
    const [at, , , solid, dashed] = chart.data;
    const value = (i) => solid[i] ?? dashed[i] ?? null;
    chart.ctx.fillStyle = colour("water");
    for (let i = 0; i < at.length; i += 1) {
      if (value(i) === null || value(i - 1) !== null || value(i + 1) !== null) continue;
      const [x, y] = [chart.valToPos(at[i], "x", true), chart.valToPos(value(i), "y", true)];
      chart.ctx.beginPath();
      chart.ctx.arc(x, y, 2.2 * devicePixelRatio, 0, 7);
      chart.ctx.fill();
    }
  }

  const redraw = () => drawn.forEach(({ chart }) => chart.redraw(false));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  addEventListener("beforeprint", () => {
    printing = true;
    root.dataset.print = "yes";
    drawRest();
    for (const { chart, kind, place } of drawn) chart.setSize({ width: PRINTED[kind], height: place.clientHeight });
  });
  addEventListener("afterprint", () => {
    printing = false;
    delete root.dataset.print;
    for (const { chart, place } of drawn) chart.setSize({ width: place.clientWidth, height: place.clientHeight });
  });

  const waiting = [...data.queries];
  function drawRest() {
    for (const query of waiting.splice(0)) band(query);
    root.dataset.drawn = "yes";
  }
  /* a few at a time: hundreds of charts at once would hold the page up */
  function drawSome() {
    for (const query of waiting.splice(0, 8)) band(query);
    if (waiting.length) setTimeout(drawSome);
    else root.dataset.drawn = "yes";
  }
  document.fonts.ready.then(() => {
    tide();
    drawSome();
  });
})();
