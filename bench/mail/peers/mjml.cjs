// CPU time that npm's mjml takes for each template of a folder, in milliseconds: `node mjml.cjs MJML FOLDER ROUNDS`.
const { readdirSync, readFileSync } = require('node:fs');
const { createRequire } = require('node:module');
const { join } = require('node:path');

const [where, folder, rounds] = process.argv.slice(2);
const found = createRequire(`${where}/`)('mjml');
const mjml = found.default ?? found;

(async () => {
  for (const name of readdirSync(folder).sort()) {
    const template = readFileSync(join(folder, name), 'utf8');
    const render = () => mjml(template, { ignoreIncludes: true, validationLevel: 'soft' });
    for (let n = 0; n < 5; n++) await render(); // until it is warm
    const before = process.cpuUsage();
    for (let n = 0; n < Number(rounds); n++) await render();
    const { user, system } = process.cpuUsage(before);
    console.log(`${name} ${(user + system) / 1000 / Number(rounds)}`);
  }
})();
