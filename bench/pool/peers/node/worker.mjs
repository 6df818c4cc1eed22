// Our worker: an operation that does nothing, without the mark that lets answers wait for each other.

import { Worker } from '../../../../sdk/node/index.js';

const worker = new Worker();
worker.operation('nothing', {}, () => null);
worker.run();
