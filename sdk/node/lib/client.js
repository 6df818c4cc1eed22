// A client of `longshore serve`: sends units and waits for them, reads replies to AI requests.
//
//   import { Client } from '@longshore/worker/client';
//
//   const client = new Client('http://127.0.0.1:7717', { token: 'lsh_…' });
//   const unit = await client.submit('greet', { name: 'Ada' }, { key: 'order-7' });
//   console.log((await client.wait(unit)).result);

import { randomUUID } from 'node:crypto';

// Time limit in seconds of a request that does not wait.
const PATIENCE = 60;
// The longest that one request waits for a unit's end; then the client sends the next one.
const WAIT = 60;

/** An error response: `status`, `kind` as `not-found`, and the whole response as `body`. */
export class Problem extends Error {
  constructor(status, body) {
    super(`${status}: ${body.detail ?? body.title ?? 'no reason was given'}`);
    this.name = 'Problem';
    this.status = status;
    this.body = body;
    this.kind = String(body.type ?? '').split(':').pop();
  }
}

export class Client {
  #base;
  #token;

  constructor(url = 'http://127.0.0.1:7717', { token } = {}) {
    this.#base = `${url.replace(/\/+$/, '')}/api/v1`;
    this.#token = token;
  }

  async submit(kind, payload = null, { key = randomUUID(), room, ...more } = {}) {
    const body = { kind, payload, ...more };
    const options = { body, query: { room }, headers: { 'idempotency-key': key }, patience: room };
    return (await this.ask('POST', '/units', options)).unit;
  }

  unit(unit) {
    return this.ask('GET', `/units/${encodeURIComponent(unit)}`);
  }

  async wait(unit, limit = Infinity) {
    const end = Date.now() + limit * 1000;
    for (;;) {
      const wait = Math.ceil(Math.max(0, Math.min(WAIT, (end - Date.now()) / 1000)));
      const options = { query: { wait }, patience: wait };
      const found = await this.ask('GET', `/units/${encodeURIComponent(unit)}`, options);
      if (['done', 'failed', 'cancelled'].includes(found.state)) return found;
      if (Date.now() >= end) throw new Error(`unit ${unit} is ${found.state} after ${limit} s`);
    }
  }

  async openReplyQueue(queue, { ttl } = {}) {
    const body = { queue, ttl_seconds: ttl };
    return new ReplyQueue(this, await this.ask('POST', '/reply-queues', { body }));
  }

  /** Sends any request of the API, and returns the JSON of the response. */
  async ask(method, path, { body, query = {}, headers = {}, patience = 0 } = {}) {
    const given = Object.entries(query).filter(([, value]) => value !== undefined);
    const search = given.length > 0 ? `?${new URLSearchParams(given)}` : '';
    const all = { ...headers };
    if (body !== undefined) all['content-type'] = 'application/json';
    if (this.#token !== undefined) all.authorization = `Bearer ${this.#token}`;
    const response = await fetch(this.#base + path + search, {
      method,
      headers: all,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: AbortSignal.timeout((PATIENCE + (patience ?? 0)) * 1000),
    });
    const answer = await response.json().catch(() => ({}));
    if (!response.ok) throw new Problem(response.status, answer);
    return answer;
  }
}

export class ReplyQueue {
  #client;
  #path;

  constructor(client, { queue, reply_queue }) {
    this.#client = client;
    this.queue = queue;
    this.address = reply_queue;
    this.#path = `/reply-queues/${encodeURIComponent(queue)}`;
  }

  async read({ wait = 0, limit = 100 } = {}) {
    const options = { query: { wait: Math.ceil(wait), limit }, patience: wait };
    return (await this.#client.ask('GET', `${this.#path}/replies`, options)).items;
  }

  async acknowledge(...ids) {
    return (await this.#client.ask('POST', `${this.#path}/ack`, { body: { ids } })).acknowledged;
  }

  async *replies({ wait = 60 } = {}) {
    for (;;) {
      const found = await this.read({ wait });
      if (found.length === 0) return;
      for (const { id, reply } of found) {
        yield reply;
        await this.acknowledge(id);
      }
    }
  }

  async close() {
    await this.#client.ask('POST', `${this.#path}/close`);
  }
}
