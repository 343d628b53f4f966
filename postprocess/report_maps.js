// --- heat maps -----------------------------------------------------------------------
const maps = [];
const bytes = text => Uint8Array.from(atob(text), c => c.charCodeAt(0));
const paintMaps = () => maps.forEach(paint => paint());
function ink(name) {
  const text = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  return [1, 3, 5].map(i => parseInt(text.slice(i, i + 2), 16));
}
// v in 0..1: below the middle towards blue, above it towards orange; or from plain to
// red.
function shades(two) {
  const [low, mid, high] = [ink('--s0'), ink('--mid'), ink(two ? '--s1' : '--s4')];
  return v => {
    const [a, b, t] = !two ? [mid, high, v] :
        v < 0.5            ? [low, mid, 2 * v] :
                             [mid, high, 2 * v - 1];
    return a.map((c, i) => c + (b[i] - c) * t);
  };
}
function fill(canvas, width, height, at, two) {
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext('2d'), image = context.createImageData(width, height);
  const shade = shades(two);
  for (let y = 0; y < height; ++y)
    for (let x = 0; x < width; ++x) {
      const rgb = shade(at(x, y) / 255);
      for (let c = 0; c < 4; ++c)
        image.data[4 * (y * width + x) + c] = c < 3 ? rgb[c] : 255;
    }
  context.putImageData(image, 0, 0);
}
function scaleBar(low, high, two) {
  const canvas = make('canvas', {'aria-hidden': 'true'});
  maps.push(() => fill(canvas, 64, 1, x => x * 4, two));
  return make('div', {class: 'scale'}, low, canvas, high);
}
function framed(canvas, layers, left, right) {
  return [
    make(
        'div', {class: 'map'},
        make(
            'div', {class: 'y'}, make('span', {}, '0'), make('span', {}, 'layer'),
            make('span', {}, String(layers - 1))),
        canvas),
    make('div', {class: 'map-x'}, make('span', {}, left), make('span', {}, right))
  ];
}
function expertMap(run) {
  const m = run.experts, data = bytes(m.data), each = m.layers * m.experts;
  const canvas = make('canvas', {
    style: `height:${Math.max(90, Math.min(260, m.layers * 16))}px`,
    role: 'img',
    'aria-label': 'load of every expert, layer by layer'
  });
  const label = make('div', {class: 'note'});
  const slider = make('input', {
    type: 'range',
    min: 0,
    max: m.step.length - 1,
    value: m.step.length - 1,
    'aria-label': 'time'
  });
  const paint = () => {
    const t = Number(slider.value);
    fill(canvas, m.experts, m.layers, (x, y) => data[t * each + y * m.experts + x], true);
    label.textContent =
        `Step ${count(m.step[t])}, ${compact(m.tokens[t])} tokens; fullest ` +
        `expert ${compact(m.worst[t])} times the mean of its layer`;
  };
  slider.addEventListener('input', paint);
  maps.push(paint);
  const box = card(
      `Load of every expert${ONE ? '' : ', ' + run.label}`,
      framed(canvas, m.layers, 'expert 0', `expert ${m.experts - 1}`), slider, label,
      scaleBar('a quarter of the mean or less', 'four times or more', true));
  box.classList.add('wide');
  return box;
}
function layerMap(run, m) {
  const data = bytes(m.data), unit = m.unit === '%' ? '%' : '';
  const canvas = make('canvas', {
    style: `height:${Math.max(90, Math.min(220, m.layers * 14))}px`,
    role: 'img',
    'aria-label': m.title
  });
  maps.push(
      () => fill(canvas, m.times, m.layers, (x, y) => data[y * m.times + x], false));
  return card(
      m.title + (ONE ? '' : `, ${run.label}`),
      framed(
          canvas, m.layers, `step ${count(m.step[0])}`, `step ${count(m.step.at(-1))}`),
      scaleBar(compact(m.floor, unit), compact(m.top, unit), false));
}
function experts() {
  const cards = RUNS.flatMap(
      run =>
          [...(run.experts ? [expertMap(run)] : []),
           ...run.layers.map(m => layerMap(run, m))]);
  return cards.length ?
      make('div', {class: 'two'}, cards) :
      make('p', {class: 'note'}, 'The run recorded no load of experts.');
}
