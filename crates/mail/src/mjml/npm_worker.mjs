// Pool worker that renders with npm's mjml (docs/worker-protocol.md). Its only dependency is mjml itself,
// which `require` resolves from the folder in LONGSHORE_MJML.
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

// Redirect library output to stderr: stdout carries the protocol.
const write = process.stdout.write.bind(process.stdout);
process.stdout.write = process.stderr.write.bind(process.stderr);
const say = (message) => write(JSON.stringify(message) + '\n');

let mjml;
let version;
const operations = {
  noop: () => null,
  echo: (value) => value,
  version: () => version,
  async render({ mjml: template }) {
    // Includes are resolved already; the worker must not read files.
    const { html, errors } = await mjml(template, { ignoreIncludes: true, validationLevel: 'soft' });
    return { html, errors: errors.map(({ line, message, tagName }) => ({ line, message, tag: tagName })) };
  },
};

function hello() {
  try {
    const require = createRequire(`${process.env.LONGSHORE_MJML ?? process.cwd()}/`);
    const found = require('mjml');
    mjml = found.default ?? found;
    version = require('mjml/package.json').version;
  } catch (error) {
    return { type: 'failed', message: `npm's mjml is not there: ${error.message.split('\n')[0]}` };
  }
  const known = Object.keys(operations).map((name) => ({ name, idempotent: true }));
  return { type: 'ready', version: 1, pid: process.pid, encoding: 'json', operations: known };
}

async function call({ id, operation, arguments: given }) {
  try {
    if (!(operation in operations)) return { type: 'error', id, kind: 'unknown_operation', message: operation };
    return { type: 'result', id, value: await operations[operation](given) };
  } catch (error) {
    return { type: 'error', id, kind: 'handler', message: error.message };
  }
}

process.on('SIGINT', () => {}); // the pool handles Ctrl-C
for await (const line of createInterface({ input: process.stdin })) {
  const message = JSON.parse(line);
  if (message.type === 'hello') say(hello());
  else if (message.type === 'call') say(await call(message));
  else if (message.type === 'ping') say({ type: 'pong', id: message.id });
  else if (message.type === 'stop') break;
}
