'use strict';
const DATA = JSON.parse(document.getElementById('data').textContent);
const RUNS = DATA.runs, ONE = RUNS.length === 1;
const VIEW = {
  x: 'step',
  full: false,
  zoom: null,
  hidden: new Set(),
  kinds: new Set()
};
const LOUD = {
  restart: '--soft',
  health: '--bad',
  save_failed: '--bad',
  skip: '--warn',
  rollback: '--bad',
  deck_change: '--s3',
  contingency: '--s3',
  stop: '--s1',
  signal: '--s1'
};
const charts = [];

// --- small helpers -------------------------------------------------------------------
function make(tag, attributes = {}, ...children) {
  const svg = ['svg', 'path', 'line', 'text', 'circle', 'rect', 'g', 'clipPath', 'defs'];
  const node = svg.includes(tag) ?
      document.createElementNS('http://www.w3.org/2000/svg', tag) :
      document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === 'on')
      Object.entries(value).forEach(([k, f]) => node.addEventListener(k, f));
    else if (value !== null && value !== undefined)
      node.setAttribute(key, value);
  }
  node.append(...children.flat().filter(child => child !== null && child !== ''));
  return node;
}
const color = i => `var(--s${i % 8})`;
const finite = v => v !== null && v !== undefined && isFinite(v);

function compact(v, unit = '') {
  if (!finite(v)) return '–';
  if (unit === '%') return (v === 0 ? '0' : trim(100 * v, 3)) + ' %';
  const a = Math.abs(v);
  for (const [limit, letter] of [[1e12, 'T'], [1e9, 'B'], [1e6, 'M'], [1e4, 'k']])
    if (a >= limit) return trim(v / (limit === 1e4 ? 1e3 : limit), 4) + letter;
  if (a !== 0 && a < 1e-3) return v.toExponential(2).replace(/\.?0+e/, 'e');
  return trim(v, 5);
}
const trim = (v, digits) => String(Number(Number(v).toPrecision(digits)));
const count = v => finite(v) ? Math.round(v).toLocaleString('en-US') : '–';

function ticks(low, high, wanted) {
  const raw = (high - low) / wanted, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map(m => m * power).find(s => s >= raw * 0.999);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; ++k)
    found.push(k * step);
  return found;
}
function logTicks(low, high) {
  const found = [], wide = high / low > 200;
  for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); ++e)
    for (const m of wide ? [1] : [1, 2, 5]) {
      const v = m * 10 ** e;
      if (v >= low * 0.999 && v <= high * 1.001) found.push(v);
    }
  return found;
}

// --- one chart -----------------------------------------------------------------------
// spec: {title, unit, log, zero, stacked, series: [{name, run, color, mean, low, high}],
//        points: [{name, run, color, values}], band}
class Chart {
  constructor(spec) {
    this.spec = spec;
    this.off = new Set(spec.series.filter(s => s.off).map(s => s.name));
    this.legend = make('div', {class: 'legend'});
    this.box = make('div');
    const unit = spec.unit && spec.unit !== '%' ? ` ${spec.unit}` : '';
    this.node = make(
        'div', {class: 'card chart' + (spec.wide ? ' wide' : '')},
        make('h3', {}, spec.title, make('span', {class: 'unit'}, unit)), this.legend,
        this.box);
    this.drawLegend();
    charts.push(this);
  }
  drawLegend() {
    const names = [];
    for (const s of this.spec.series) names.push([s.name, s.color, '']);
    for (const p of this.spec.points || []) names.push([p.name, p.color, ' dot']);
    if (this.spec.band) names.push(['ladder forecast and band', 'var(--other)', '']);
    if (names.length < 2 && !this.spec.band) return;
    this.legend.replaceChildren(...names.map(
        ([name, ink, shape]) => make(
            'button', {
              class: this.off.has(name) ? 'off' : '',
              on: {
                click: () => {
                  this.off.has(name) ? this.off.delete(name) : this.off.add(name);
                  this.drawLegend();
                  this.draw();
                }
              }
            },
            make('span', {class: 'key' + shape, style: `background:${ink}`}), name)));
  }
  visible() {
    return this.spec.series.filter(s => !this.off.has(s.name));
  }
  points() {
    return (this.spec.points || []).filter(p => !this.off.has(p.name));
  }
  xs(item) {
    return item.x ? item.x[VIEW.x] : RUNS[item.run].x[VIEW.x];
  }

  xRange() {
    if (VIEW.zoom) return VIEW.zoom;
    let high = 0;
    for (const run of RUNS) high = Math.max(high, run.x[VIEW.x].at(-1));
    const low = Math.min(...RUNS.map(run => run.x[VIEW.x][0]));
    return [low < high / 20 ? 0 : low, high > low ? high : low + 1];
  }
  yRange([x0, x1]) {
    const seen = [];
    const early = VIEW.zoom ? x0 : x0 + (x1 - x0) * 0.02;
    const add = (xs, values) => xs.forEach((x, i) => {
      if (x >= (VIEW.full ? x0 : early) && x <= x1 && finite(values[i]) &&
          (!this.spec.log || values[i] > 0))
        seen.push(values[i]);
    });
    for (const s of this.shapes()) {
      add(this.xs(s), s.mean);
      if (VIEW.full && s.low) {
        add(this.xs(s), s.low);
        add(this.xs(s), s.high);
      }
    }
    for (const p of this.points()) add(p.x[VIEW.x], p.values);
    if (!seen.length) return this.spec.log ? [0.1, 1] : [0, 1];
    if (this.spec.unit === '%' && seen.every(v => v === 0)) return [0, 0.01];
    seen.sort((a, b) => a - b);
    const cut = VIEW.full || seen.length < 50 || this.spec.stacked ? 0 : 0.002;
    let low = seen[Math.floor(cut * (seen.length - 1))];
    let high = seen[Math.ceil((1 - cut) * (seen.length - 1))];
    if (this.spec.log)
      return low === high ? [low / 2, high * 2] : [low / 1.15, high * 1.15];
    if (this.spec.zero || this.spec.stacked) low = Math.min(0, low);
    const pad = (high - low || Math.abs(high) || 1) * 0.06;
    return [low === 0 ? 0 : low - pad, high + pad];
  }
  // Stacked series become sums with their floors.
  shapes() {
    if (!this.spec.stacked) return this.visible();
    let below = null;
    return this.visible().map(s => {
      const floor = below || s.mean.map(() => 0);
      const mean = s.mean.map((v, i) => (v || 0) + floor[i]);
      below = mean;
      return {...s, mean, floor, low: null};
    });
  }

  draw() {
    const width = Math.max(240, this.box.clientWidth);
    const height = width < 420 ? 200 : this.spec.wide ? 270 : 230;
    const frame = {left: 46, right: 10, top: 8, bottom: 34};
    const [x0, x1] = this.xRange(), [y0, y1] = this.yRange([x0, x1]);
    const log = this.spec.log, f = log ? Math.log : v => v;
    const inner = {
      w: width - frame.left - frame.right,
      h: height - frame.top - frame.bottom
    };
    const X = v => frame.left + (v - x0) / (x1 - x0) * inner.w;
    const Y = v => frame.top + (1 - (f(v) - f(y0)) / (f(y1) - f(y0))) * inner.h;
    this.scale = {X, Y, x0, x1, width, height, frame, inner};
    const svg = make('svg', {
      viewBox: `0 0 ${width} ${height}`,
      height,
      role: 'img',
      'aria-label': this.spec.title
    });
    const id = `clip${charts.indexOf(this)}`;
    svg.append(make(
        'defs', {},
        make(
            'clipPath', {id},
            make(
                'rect',
                {x: frame.left, y: frame.top, width: inner.w, height: inner.h}))));
    this.drawAxes(svg, y0, y1);
    const plot = make('g', {'clip-path': `url(#${id})`});
    this.drawBand(plot);
    this.drawMarks(plot);
    for (const s of this.shapes()) this.drawSeries(plot, s);
    for (const p of this.points()) this.drawPoints(plot, p);
    svg.append(plot);
    this.cursor = make('line', {
      y1: frame.top,
      y2: frame.top + inner.h,
      stroke: 'var(--soft)',
      'stroke-width': 1,
      visibility: 'hidden'
    });
    this.shade = make('rect', {
      y: frame.top,
      height: inner.h,
      fill: 'var(--accent)',
      'fill-opacity': 0.15,
      visibility: 'hidden'
    });
    svg.append(this.cursor, this.shade);
    this.listen(svg);
    this.box.replaceChildren(svg);
  }
  drawAxes(svg, y0, y1) {
    const {X, Y, x0, x1, width, height, frame, inner} = this.scale;
    let ys = this.spec.log ? logTicks(y0, y1) : ticks(y0, y1, 4);
    if (ys.length < 2) ys = ticks(y0, y1, 4);
    for (const v of ys) {
      svg.append(make('line', {
        x1: frame.left,
        x2: width - frame.right,
        y1: Y(v),
        y2: Y(v),
        stroke: 'var(--grid)'
      }));
      svg.append(make(
          'text', {class: 'axis', x: frame.left - 6, y: Y(v) + 4, 'text-anchor': 'end'},
          compact(v, this.spec.unit).replace(' %', '%')));
    }
    for (const v of ticks(x0, x1, Math.max(3, Math.floor(inner.w / 95)))) {
      svg.append(make(
          'text', {
            class: 'axis',
            x: X(v),
            y: height - frame.bottom + 15,
            'text-anchor': X(v) > width - 25 ? 'end' : 'middle'
          },
          compact(v)));
    }
    svg.append(make('line', {
      x1: frame.left,
      x2: width - frame.right,
      y1: frame.top + inner.h,
      y2: frame.top + inner.h,
      stroke: 'var(--line)'
    }));
    svg.append(make(
        'text',
        {class: 'axis', x: width - frame.right, y: height - 4, 'text-anchor': 'end'},
        VIEW.x === 'step' ? 'step' : 'tokens'));
  }
  path(xs, values) {
    const {X, Y} = this.scale;
    let text = '', pen = false;
    values.forEach((v, i) => {
      const good = finite(v) && (!this.spec.log || v > 0);
      if (good) text += `${pen ? 'L' : 'M'}${X(xs[i]).toFixed(1)} ${Y(v).toFixed(1)}`;
      pen = good;
    });
    return text;
  }
  area(xs, low, high) {
    const whole =
        xs.map((x, i) => i)
            .filter(
                i => finite(low[i]) && finite(high[i]) && (!this.spec.log || low[i] > 0));
    const forth = this.path(whole.map(i => xs[i]), whole.map(i => high[i]));
    whole.reverse();
    const back = this.path(whole.map(i => xs[i]), whole.map(i => low[i]));
    return forth && back ? forth + 'L' + back.slice(1) + 'Z' : '';
  }
  drawSeries(plot, s) {
    const xs = this.xs(s);
    if (s.floor) {
      plot.append(make(
          'path',
          {d: this.area(xs, s.floor, s.mean), fill: s.color, 'fill-opacity': 0.85}));
      return;
    }
    if (s.low)
      plot.append(make(
          'path', {d: this.area(xs, s.low, s.high), fill: s.color, 'fill-opacity': 0.2}));
    plot.append(make('path', {
      d: this.path(xs, s.mean),
      fill: 'none',
      stroke: s.color,
      'stroke-width': s.thin ? 1.1 : 1.7,
      'stroke-linejoin': 'round'
    }));
    if (xs.length === 1 && finite(s.mean[0]))
      plot.append(make(
          'circle',
          {r: 3, cx: this.scale.X(xs[0]), cy: this.scale.Y(s.mean[0]), fill: s.color}));
  }
  drawPoints(plot, p) {
    const r = p.values.length > 80 ? 2 : 3.4;
    p.values.forEach((v, i) => finite(v) && plot.append(make('circle', {
      r,
      fill: p.color,
      cx: this.scale.X(p.x[VIEW.x][i]),
      cy: this.scale.Y(v),
      stroke: 'var(--card)'
    })));
  }
  drawBand(plot) {
    const band = this.spec.band;
    if (!band || this.off.has('ladder forecast and band')) return;
    const per = RUNS[0].x.tokens.at(-1) / RUNS[0].x.step.at(-1);
    const xs = VIEW.x === 'tokens' ? band.tokens : band.tokens.map(t => t / per);
    plot.append(make('path', {
      d: this.area(xs, band.low, band.high),
      fill: 'var(--other)',
      'fill-opacity': 0.35
    }));
    plot.append(make('path', {
      d: this.path(xs, band.loss),
      fill: 'none',
      stroke: 'var(--soft)',
      'stroke-dasharray': '5 3'
    }));
  }
  drawMarks(plot) {
    // One path a colour: a long run has thousands of checkpoints.
    const {X, frame, inner} = this.scale, bottom = frame.top + inner.h, paths = {};
    const places = run =>
        [...run.events.list.filter(e => LOUD[e[2]]),
         ...Object.entries(run.events.marks)
             .flatMap(([kind, list]) => list.map(place => [...place, kind]))];
    RUNS.forEach((run, r) => places(run).forEach(([step, tokens, kind]) => {
      if (VIEW.kinds.has(kind)) return;
      const x = X(VIEW.x === 'step' ? step : tokens).toFixed(1), loud = LOUD[kind];
      const ink = loud && !ONE ? color(r) : `var(${loud || '--other'})`;
      const key = `${ink} ${loud ? '3 3' : 'none'}`;
      const top = loud ? frame.top : bottom - 5;
      paths[key] = (paths[key] || '') + `M${x} ${top}V${bottom}`;
    }));
    for (const [key, d] of Object.entries(paths)) {
      const [stroke, ...dashes] = key.split(' ');
      plot.append(make('path', {d, stroke, 'stroke-dasharray': dashes.join(' ')}));
    }
  }
  listen(svg) {
    let from = null;
    const at = event => {
      const {x0, x1, width, frame, inner} = this.scale, box = svg.getBoundingClientRect();
      const px = (event.clientX - box.left) * width / box.width;
      return x0 + Math.min(1, Math.max(0, (px - frame.left) / inner.w)) * (x1 - x0);
    };
    const hide = () => {
      tip.hidden = true;
      this.cursor.setAttribute('visibility', 'hidden');
    };
    svg.addEventListener('pointermove', event => {
      this.hover(at(event), event);
      if (from === null) return;
      const [a, b] = [from, at(event)].sort((p, q) => p - q).map(this.scale.X);
      for (const [k, v] of Object.entries({x: a, width: b - a, visibility: 'visible'}))
        this.shade.setAttribute(k, v);
    });
    svg.addEventListener('pointerleave', () => {
      hide();
      from = null;
      this.shade.setAttribute('visibility', 'hidden');
    });
    svg.addEventListener('pointerdown', event => {
      if (event.pointerType === 'mouse') from = at(event);
    });
    svg.addEventListener('pointerup', event => {
      const [a, b] = [from, at(event)].sort((p, q) => p - q), start = from;
      from = null;
      this.shade.setAttribute('visibility', 'hidden');
      if (start !== null && b - a > (this.scale.x1 - this.scale.x0) / 60) zoom([a, b]);
    });
    svg.addEventListener('dblclick', () => zoom(null));
  }
  hover(x, event) {
    const px = this.scale.X(x), rows = [];
    this.cursor.setAttribute('x1', px);
    this.cursor.setAttribute('x2', px);
    this.cursor.setAttribute('visibility', 'visible');
    const line = (ink, ...words) => rows.push(make(
        'div', {}, make('span', {class: 'key', style: `background:${ink}`}), ...words));
    rows.push(make('div', {}, `${VIEW.x} ${count(x)}`));
    for (const s of this.visible()) {
      const i = nearest(this.xs(s), x),
            span = s.low ? ` (${compact(s.low[i], this.spec.unit)} to ${
                               compact(s.high[i], this.spec.unit)})` :
                           '';
      line(s.color, `${s.name} ${compact(s.mean[i], this.spec.unit)}${span}`);
    }
    for (const p of this.points())
      if (p.values.length) {
        const i = nearest(p.x[VIEW.x], x);
        line(p.color, `${p.name} ${compact(p.values[i])} at ${count(p.x[VIEW.x][i])}`);
      }
    const reach = (this.scale.x1 - this.scale.x0) / 100;
    RUNS.forEach(
        run => run.events.list
                   .filter(
                       e => !VIEW.kinds.has(e[2]) &&
                           Math.abs((VIEW.x === 'step' ? e[0] : e[1]) - x) < reach)
                   .slice(0, 4)
                   .forEach(
                       e => rows.push(make('div', {}, `${e[2]}: ${e[3].slice(0, 80)}`))));
    tip.replaceChildren(...rows);
    tip.hidden = false;
    const wide = tip.offsetWidth, right = event.clientX + 16 + wide > innerWidth;
    tip.style.left =
        Math.max(4, right ? event.clientX - wide - 12 : event.clientX + 14) + 'px';
    tip.style.top =
        Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 6) + 'px';
  }
}

function nearest(xs, x) {
  let low = 0, high = xs.length - 1;
  while (low < high) {
    const mid = (low + high) >> 1;
    if (xs[mid] < x)
      low = mid + 1;
    else
      high = mid;
  }
  return low > 0 && x - xs[low - 1] < xs[low] - x ? low - 1 : low;
}
function zoom(range) {
  VIEW.zoom = range;
  redraw();
}
function redraw() {
  charts.forEach(chart => chart.draw());
  document.getElementById('unzoom').hidden = !VIEW.zoom;
}
const tip = make('div', {class: 'tip'});
tip.hidden = true;
