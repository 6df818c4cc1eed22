// The jobs: each is a stream of events, as long as its call runs.
for (const job of document.querySelectorAll('.job')) {
  const [button, bar, share, result] = ['button', 'progress', 'output', '.result'].map((what) => job.querySelector(what));
  let source = null;

  const show = (state, percent) => {
    job.className = `job ${state}`;
    button.textContent = state === 'running' ? 'Stop' : 'Run';
    if (percent === undefined) return;
    bar.value = percent;
    share.value = `${Math.round(percent)} %`;
  };
  // A browser requests an ended stream again, which would repeat the call: close it.
  const end = (state, text, percent) => {
    source.close();
    source = null;
    result.textContent = text;
    show(state, percent);
  };

  const stop = () => source && end('', 'Stopped.');
  // Browsers keep a page that was left for a while, and its streams with it.
  addEventListener('pagehide', stop);

  button.addEventListener('click', () => {
    if (source) return stop();
    result.textContent = '';
    show('running', 0);
    source = new EventSource(`/run/${job.id}`);
    source.addEventListener('progress', (event) => {
      const { done, of } = JSON.parse(event.data);
      show('running', (100 * done) / of);
    });
    source.addEventListener('done', (event) => {
      const { text, image } = JSON.parse(event.data);
      end('done', text, 100);
      if (image) result.append(Object.assign(new Image(), { src: image, alt: 'A harbour in the evening' }));
    });
    // Either our own event, with a problem in it, or the browser's: the connection is gone.
    source.addEventListener('error', (event) => {
      end('failed', event.data ? JSON.parse(event.data).detail : 'The connection was lost, or refused.');
    });
  });
}

// The ticker: sends pings, and shows how long each answer took.
const ticker = document.querySelector('#ticker');
ticker.append(...Array.from({ length: 80 }, () => document.createElement('i')));
const times = [];
let pings = 0;

async function ping() {
  const start = performance.now();
  try {
    await (await fetch('/ping', { cache: 'no-store' })).text();
  } catch {
    return;
  }
  const time = performance.now() - start;
  times.push(time);
  if (times.length > 80) times.shift();
  pings += 1;
  const bar = ticker.firstElementChild;
  bar.className = time < 50 ? 'quick' : 'slow';
  bar.style.height = `${Math.min(100, 4 + time)}%`;
  ticker.append(bar);
  document.querySelector('#now').textContent = time.toFixed(1);
  document.querySelector('#worst').textContent = Math.max(...times).toFixed(1);
  document.querySelector('#pings').textContent = pings;
}

// The pools' own statistics.
async function look() {
  try {
    const pools = await (await fetch('/pools/stats')).json();
    const rows = Object.entries(pools).map(([name, { stats }]) => {
      const row = document.createElement('tr');
      for (const value of [name, stats.workers, stats.busy, stats.queue_depth, stats.done, stats.failed]) {
        row.insertCell().textContent = value;
      }
      return row;
    });
    document.querySelector('#pools').replaceChildren(...rows);
  } catch { /* the next look will tell */ }
}

async function repeat(what, every) {
  for (;;) {
    await what();
    await new Promise((after) => setTimeout(after, every));
  }
}
// The first one opens the connection, and does not count.
await fetch('/ping').catch(() => {});
repeat(ping, 100);
repeat(look, 500);
