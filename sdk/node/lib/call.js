// One call, as the operation sees it.

import { Cancelled } from './errors.js';

export class Call {
  #message;
  #tell;
  #deadline;
  #cancelled = false;
  #controller;
  #timer;

  constructor(message, state, tell) {
    this.#message = message;
    this.#tell = tell;
    this.#deadline = message.limit > 0 ? performance.now() + message.limit : undefined;
    this.state = state;
  }

  get id() {
    return this.#message.id;
  }

  get operation() {
    return this.#message.operation;
  }

  get remaining() {
    return this.#deadline === undefined ? undefined : Math.max(0, this.#deadline - performance.now());
  }

  get cancelled() {
    return this.#cancelled || this.remaining === 0;
  }

  /** Made when somebody asks for it: most operations never do. */
  get signal() {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.cancelled) this.#controller.abort(new Cancelled());
      else this.#watchClock();
    }
    return this.#controller.signal;
  }

  check() {
    if (this.cancelled) throw new Cancelled();
  }

  progress(value) {
    if (!this.#message.listens) return;
    try {
      this.#tell(this.id, value);
    } catch (error) {
      if (error.code === 'EPIPE') throw error;
      console.error(`longshore: progress of ${this.operation} dropped: ${error.message}`);
    }
  }

  /** Nobody wants the result any more. For the worker, not for operations. */
  _cancel() {
    this.#cancelled = true;
    this.#controller?.abort(new Cancelled());
  }

  /** It has been answered. For the worker, not for operations. */
  _done() {
    clearTimeout(this.#timer);
  }

  #watchClock() {
    // A longer time than a timer can hold is no limit.
    if (this.#deadline === undefined || this.remaining > 0x7fff_ffff) return;
    this.#timer = setTimeout(() => this.#controller.abort(new Cancelled('its time is over')), this.remaining);
    this.#timer.unref();
  }
}
