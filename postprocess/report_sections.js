// --- sections of the page ------------------------------------------------------------
const card = (title, ...children) => make(
    'div', {class: 'card'},
    title ? make('h3', {style: 'margin-bottom:.6rem'}, title) : '', ...children);

function linked(text) {
  const parts = String(text).split(/(https?:\/\/[^\s,]+)/);
  return parts.map(
      (part, i) => i % 2 ? make('a', {href: part, rel: 'noreferrer'}, part) : part);
}
function table(head, rows, numbers = []) {
  const cell = (v, i) => make('td', {class: numbers.includes(i) ? 'n' : null}, v);
  return make(
      'div', {class: 'scroll'},
      make(
          'table', {},
          make('thead', {}, make('tr', {}, head.map(h => make('th', {}, h)))),
          make('tbody', {}, rows.map(row => make('tr', {}, row.map(cell))))));
}
function toggle(labels, current, choose) {
  const box = make('div', {class: 'switch'});
  const paint =
      chosen =>
          box.replaceChildren(
              ...labels.map(
                  ([value, label]) =>
                      make(
                          'button', {
                            'aria-pressed': String(value === chosen),
                            on: {
                              click: () => {
                                choose(value);
                                paint(value);
                              }
                            }
                          },
                          label)));
  paint(current);
  return box;
}

function head() {
  const chips = RUNS.map(
      run => make(
          'span', {class: `chip ${run.state}`},
          ONE ? run.state : `${run.label}: ${run.state}`));
  return make(
      'header', {},
      make(
          'div', {class: 'head'}, make('h1', {}, DATA.title), ...chips,
          make('span', {class: 'by'}, `Capstan run page, written ${DATA.written}`)));
}
function bar() {
  const dark = matchMedia('(prefers-color-scheme: dark)');
  const root = document.documentElement;
  const paint = on => {
    root.dataset.theme = on ? 'dark' : 'light';
    paintMaps();
  };
  paint(dark.matches);
  dark.addEventListener('change', event => paint(event.matches));
  const links = [
    ['Question', 'question'], ['Curves', 'curves'], ['Experts', 'experts'],
    ['Events', 'events'], ['Deck', 'deck']
  ];
  const reset =
      make('button', {id: 'unzoom', on: {click: () => zoom(null)}}, 'Whole run');
  reset.hidden = true;
  return make(
      'div', {class: 'bar'},
      make('nav', {}, links.map(([label, id]) => make('a', {href: '#' + id}, label))),
      reset,
      toggle(
          [['step', 'Steps'], ['tokens', 'Tokens']], VIEW.x,
          value => {
            VIEW.x = value;
            zoom(null);
          }),
      toggle(
          [[false, 'Fit'], [true, 'Full range']], VIEW.full,
          value => {
            VIEW.full = value;
            redraw();
          }),
      make(
          'div', {class: 'switch'},
          make(
              'button', {
                'aria-label': 'light or dark',
                on: {click: () => paint(root.dataset.theme !== 'dark')}
              },
              '◐')));
}
function overview() {
  if (!ONE)
    return make(
        'div', {class: 'card', style: 'margin-top:1rem'},
        table(
            ['', ...RUNS.map(run => run.label)], DATA.comparison,
            RUNS.map((_, i) => i + 1)));
  return make(
      'div', {class: 'tiles'},
      RUNS[0].tiles.map(
          ([label, figure, small]) => make(
              'div', {class: 'card'}, make('div', {class: 'label'}, label),
              make('div', {class: 'figure'}, figure),
              make('div', {class: 'small'}, small))));
}

const NAMES = {
  goal: 'Goal',
  hypothesis: 'Hypothesis',
  falsified_by: 'Falsified by',
  links: 'Links'
};
function question(run) {
  const {start, now, seal} = run.experiment;
  const said = start.filter(([, value]) => value);
  const later = Object.fromEntries(now);
  const list = make(
      'dl', {},
      said.flatMap(
          ([key, value]) =>
              [make('dt', {}, NAMES[key] || key),
               make(
                   'dd', {}, linked(value),
                   later[key] !== undefined && later[key] !== value && now.length ?
                       make(
                           'div', {class: 'warn'},
                           `changed later to: ${later[key] || '(nothing)'}`) :
                       '')]));
  let text = 'As in the deck of the first segment; no job script has sealed it.';
  if (seal)
    text = `Written ${seal.written}, before step ${seal.before_step}; sha256 ` +
        `${(seal.sha256 || '').slice(0, 16)}…, ${
               seal.intact ? 'intact' : 'NOT the text\'s hash'}` +
        (seal.same ? '.' : '; the first deck says something else.');
  const wrong = seal && !(seal.intact && seal.same);
  return card(
      ONE ? 'The question, as it stood at the start' : run.label,
      said.length ? list : make('p', {class: 'note'}, 'The deck has no <experiment>.'),
      said.length ? make('p', {class: 'seal' + (wrong ? ' bad' : '')}, text) : '');
}
function verdict(run) {
  return card(
      ONE ? 'Verdict' : `Verdict on ${run.label}`,
      make(
          'ul', {class: 'verdict'},
          run.verdict.map(([kind, text]) => make('li', {class: kind}, text))),
      run.written ? make('div', {class: 'said'}, run.written) : '');
}

const labelled = (run, text) => ONE ? text : run.label + (text ? `, ${text}` : '');
function series(name, text, options = {}) {
  return RUNS.map((run, r) => ({run, r}))
      .filter(({run}) => run.curves[name])
      .map(({run, r}) => {
        const [mean, low, high] = run.curves[name];
        return {
          name: labelled(run, text),
          run: r,
          color: color(options.color ?? r),
          mean,
          low: ONE || options.shade ? low : null,
          high
        };
      });
}
function groups(stem, from = 1) {
  if (!ONE) return [];
  return Object.keys(RUNS[0].curves)
      .filter(key => key.startsWith(stem + '_') && !['drop_fraction'].includes(key))
      .map((key, i) => ({
             name: key.slice(stem.length + 1),
             run: 0,
             color: color(from + i),
             mean: RUNS[0].curves[key][0],
             thin: true
           }));
}
function heldOut() {
  const points = [];
  RUNS.forEach(
      (run, r) => Object.keys(run.evals)
                      .filter(key => key.startsWith('loss'))
                      .forEach((key, k) => {
                        const kind = key === 'loss' ? 'held-out, dropless' :
                                                      `held-out, ${key.slice(5)}`;
                        if (run.evals[key].length)
                          points.push({
                            name: labelled(run, kind),
                            run: r,
                            color: ONE ? (k ? 'var(--s3)' : 'var(--s1)') : color(r),
                            x: run.evals,
                            values: run.evals[key]
                          });
                      }));
  return points;
}
function drops() {
  if (!RUNS.some(run => run.curves.drop_fraction)) return null;
  const none = RUNS.every(
      run => !run.curves.drop_fraction || run.curves.drop_fraction[0].every(v => !v));
  const stacked = ONE && !none,
        list = stacked ?
      [
        ...series('drop_sender_fraction', 'sender full', {color: 1}),
        ...series('drop_receiver_fraction', 'receiver full', {color: 0})
      ] :
      ONE ?
      series('drop_fraction', 'dropped') :
      [
        ...series('drop_sender_fraction', 'sender'),
        ...series('drop_receiver_fraction', 'receiver').map(s => ({...s, thin: true}))
      ];
  return {
    title: none ? 'Dropped assignments: none' : 'Dropped assignments by cause',
    unit: '%',
    zero: true,
    stacked,
    series: list
  };
}
function phases() {
  const found = [];
  const ink = (name, i) => name === 'other' ? 'var(--other)' :
      name === 'unaccounted'                ? 'var(--rest)' :
                                              color(i);
  RUNS.forEach((run, r) => run.phases.length && found.push({
    title: ONE ? 'Time of a step by phase' : `Time of a step by phase, ${run.label}`,
    unit: 'seconds',
    stacked: true,
    wide: ONE,
    series: run.phases.map(
        ([name, mean], i) =>
            ({name: name.replaceAll('_', ' '), run: r, color: ink(name, i), mean}))
  }));
  return found;
}
function curves() {
  const list = [
    {
      title: 'Loss',
      unit: 'nats per token',
      wide: true,
      series: series('loss', 'training'),
      points: heldOut(),
      band: DATA.band
    },
    drops(),
    {
      title: 'Gradient norm, before clipping',
      log: true,
      series: [...series('grad_norm', 'all'), ...groups('grad_norm')]
    },
    {
      title: 'Throughput',
      unit: 'tokens per second',
      zero: true,
      series: series('tokens_per_second', 'tokens/s')
    },
    {
      title: 'Model FLOP utilisation',
      unit: '%',
      zero: true,
      series: series('mfu', 'MFU')
    },
    {
      title: 'Fullest expert over the mean, worst layer',
      series: series('load_max_over_mean', 'fullest / mean')
    },
    {
      title: 'Learning rate',
      zero: true,
      series: [...series('lr', 'first group'), ...groups('lr')]
    },
    {
      title: 'Size of the update over the parameters',
      log: true,
      series: series('update_ratio', 'ratio')
    },
    ...phases(),
  ];
  const charts =
      list.filter(spec => spec && spec.series.length).map(spec => new Chart(spec).node);
  const most = Math.max(...RUNS.map(run => run.stepsPerPoint));
  const text = most > 1 ?
      `Each point is the mean of about ${trim(most, 3)} steps; shading ` +
          'spans the least to the greatest of them, so no spike is lost. ' :
      'Every step is a point. ';
  return [
    kinds(), make('div', {class: 'two'}, charts),
    make(
        'p', {class: 'note'}, text,
        '“Fit” leaves the first 2 % and the rarest 0.2 % out of the scale, ',
         '“Full range” shows all. ',
        'Drag across a chart to look closer; click names to hide them.')
  ];
}
function kinds() {
  const total = {};
  RUNS.forEach(run => Object.entries(run.events.counts).forEach(([kind, n]) => {
    total[kind] = (total[kind] || 0) + n;
  }));
  const box = make('div', {class: 'legend', style: 'margin-bottom:.7rem'});
  const paint = () => box.replaceChildren(
      make('span', {}, 'Events on every chart:'),
      ...Object.entries(total).map(
          ([kind, n]) => make(
              'button', {
                class: VIEW.kinds.has(kind) ? 'off' : '',
                on: {
                  click: () => {
                    VIEW.kinds.has(kind) ? VIEW.kinds.delete(kind) : VIEW.kinds.add(kind);
                    paint();
                    redraw();
                  }
                }
              },
              make('span', {
                class: 'key tall',
                style: `background:var(${LOUD[kind] || '--other'})`
              }),
              `${kind.replaceAll('_', ' ')} (${n})`)));
  paint();
  return box;
}

// --- events and deck -----------------------------------------------------------------
function eventList(run) {
  const rows = [...run.events.list].reverse().map(
      ([step, tokens, kind, text, segment]) =>
          [count(step), compact(tokens),
           make(
               'span', {style: `color:var(${LOUD[kind] || '--soft'})`},
               kind.replaceAll('_', ' ')),
           text, String(segment)]);
  const first = rows.slice(0, 12), more = rows.slice(12),
        head = ['Step', 'Tokens', 'Event', 'What', 'Segment'];
  const left = run.events.all - rows.length;
  return card(
      ONE ? '' : run.label, table(head, first, [0, 1]),
      more.length ?
          make(
              'details', {}, make('summary', {}, `${more.length} earlier events`),
              table(head, more, [0, 1])) :
          '',
      left > 0 ? make('p', {class: 'note'}, `${left} older checkpoints are left out.`) :
                 '');
}
function deck(run) {
  const rows = run.restarts.flatMap(
      r => r.changes.length ? r.changes.map(
                                  ([key, before, after], i) =>
                                      [i ? '' : `${count(r.step)}`, make('code', {}, key),
                                       make('code', {class: 'removed'}, before),
                                       make('code', {class: 'added'}, after)]) :
                                           [[count(r.step), 'the same deck', '', '']]);
  return card(
      ONE ? '' : run.label,
      rows.length ?
          table(['Restart at step', 'Key', 'Before', 'After'], rows, [0]) :
          make('p', {class: 'note', style: 'margin-top:0'}, 'Never restarted: one deck.'),
      make(
          'details', {}, make('summary', {}, 'The whole deck'),
          make('pre', {}, run.deck)),
      make(
          'details', {}, make('summary', {}, 'Where it ran'),
          make(
              'dl', {style: 'margin-top:.6rem'},
              run.origin.flatMap(
                  ([
                    label, text
                  ]) => [make('dt', {}, label), make('dd', {class: 'mono'}, text)]))));
}
function section(id, title, ...children) {
  return make('section', {id}, make('h2', {}, title), ...children);
}

const side = parts => make('div', {class: RUNS.length > 2 || !ONE ? 'two' : ''}, parts);
document.getElementById('page').replaceChildren(
    head(), bar(), overview(),
    section(
        'question', 'Question and verdict',
        ONE ? make('div', {class: 'two'}, question(RUNS[0]), verdict(RUNS[0])) :
              side([...RUNS.map(question), ...RUNS.map(verdict)])),
    section('curves', 'Curves', ...curves()), section('experts', 'Experts', experts()),
    section('events', 'Events', side(RUNS.map(eventList))),
    section(
        'deck', 'Deck',
        DATA.differences.length ?
            make(
                'div', {class: 'card', style: 'margin-bottom:.9rem'},
                make('h3', {style: 'margin-bottom:.5rem'}, 'Where the decks differ'),
                table(
                    ['Key', ...RUNS.map(run => run.label)],
                    DATA.differences.map(
                        ([key, ...values]) => [make('code', {}, key), ...values]))) :
            '',
        side(RUNS.map(deck))));
document.body.append(tip);
redraw();
paintMaps();
let width = innerWidth;
addEventListener('resize', () => {
  if (innerWidth !== width) {
    width = innerWidth;
    redraw();
  }
});
document.documentElement.dataset.ready = Math.round(performance.now());
