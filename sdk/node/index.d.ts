/** A worker: operations that a Longshore pool can call, in a persistent process. */
export class Worker<State = undefined> {
  constructor(options?: WorkerOptions);

  /**
   * Adds an operation, or replaces the one with the same name. The handler gets the call's arguments whole:
   * any JSON value, or a `Buffer` if the caller sent bytes. Its return value, or the value of its promise,
   * is the result; a `Buffer`, another view or an `ArrayBuffer` is returned as bytes.
   */
  operation<Arguments = any, Result = unknown>(
    name: string,
    options: OperationOptions,
    handler: (args: Arguments, call: Call<State>) => Result | Promise<Result>,
  ): this;
  operation<Arguments = any, Result = unknown>(
    name: string,
    handler: (args: Arguments, call: Call<State>) => Result | Promise<Result>,
  ): this;

  /** Creates the state, before the first call. If it throws, the pool gets the error, and the worker is not ready. */
  init(make: () => State | Promise<State>): this;

  /** Called with the state when the worker ends normally. */
  cleanup(end: (state: State) => void | Promise<void>): this;

  /** Asks the pool to replace this worker; calls may still arrive until then. */
  retire(): void;

  /** Runs calls of the pool that started this process until the pool stops it, then ends the process. */
  run(): Promise<never>;
}

export interface WorkerOptions {
  /** How many calls may run at a time; 1 by default. For operations that wait a lot. */
  concurrency?: number;
}

export interface OperationOptions {
  /** What it does, for people. */
  description?: string;
  /** Time limit in seconds, unless the caller sets one. */
  timeout?: number;
  /** The operation may be repeated: if a worker dies during a call, the pool makes the call again. */
  idempotent?: boolean;
  /** The JSON Schema of its arguments. Shown, not checked. */
  arguments?: object;
  /** The JSON Schema of its result. Shown, not checked. */
  result?: object;
}

/** One call: reports progress, and tells whether it was cancelled. */
export interface Call<State = undefined> {
  readonly id: number;
  readonly operation: string;
  /** What `init` returned. */
  readonly state: State;
  /** Milliseconds until the call's deadline; undefined without one. */
  readonly remaining: number | undefined;
  /** Whether the result is no longer needed: the caller cancelled the call, or its time is over. */
  readonly cancelled: boolean;
  /** Aborted when the call is cancelled; for `fetch` and similar functions. */
  readonly signal: AbortSignal;
  /** Throws `Cancelled` if the result is no longer needed. */
  check(): void;
  /** Reports progress to the caller. Costs nothing if the caller does not listen. */
  progress(value: unknown): void;
}

/** The operation failed, with data for the caller's program. */
export class OperationError extends Error {
  constructor(message: string, more?: { data?: unknown; cause?: unknown });
  readonly kind: string;
  readonly data: unknown;
}

/** The arguments are invalid. */
export class BadArguments extends OperationError {}

/** The result is no longer needed. */
export class Cancelled extends OperationError {
  constructor(message?: string, more?: { data?: unknown; cause?: unknown });
}
