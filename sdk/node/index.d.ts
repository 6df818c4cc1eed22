/** A worker: operations that a Longshore pool can call, in a process that stays. */
export class Worker<State = undefined> {
  constructor(options?: WorkerOptions);

  /**
   * Adds an operation. One of the same name is replaced. The handler gets the call's arguments whole:
   * any JSON value, or a `Buffer` if the caller sent bytes. What it returns, or its promise resolves
   * to, is the result; a `Buffer`, another view or an `ArrayBuffer` goes back as bytes.
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

  /** Makes the state, before the first call. What it throws is told to the pool: the worker is not ready. */
  init(make: () => State | Promise<State>): this;

  /** Gets the state when the worker ends in good order. */
  cleanup(end: (state: State) => void | Promise<void>): this;

  /** Asks the pool to replace this worker when it suits; calls may still come until then. */
  retire(): void;

  /** Works for the pool that started this process until it says stop, then ends the process. */
  run(): Promise<never>;
}

export interface WorkerOptions {
  /** How many calls may run at a time; 1 unless told. For operations that wait a lot. */
  concurrency?: number;
}

export interface OperationOptions {
  /** What it does, for people. */
  description?: string;
  /** Seconds it may take where the caller says nothing. */
  timeout?: number;
  /** Doing it twice is as good as once: a call whose worker died may be made again. */
  idempotent?: boolean;
  /** The JSON Schema of its arguments. Shown, not checked. */
  arguments?: object;
  /** The JSON Schema of its result. Shown, not checked. */
  result?: object;
}

/** One call: what it may tell its caller, and whether to go on. */
export interface Call<State = undefined> {
  readonly id: number;
  readonly operation: string;
  /** What `init` made. */
  readonly state: State;
  /** Milliseconds until the caller gives up; undefined if it never does. */
  readonly remaining: number | undefined;
  /** Whether nobody wants the result any more: the caller took the call back, or its time is over. */
  readonly cancelled: boolean;
  /** The same, for `fetch` and its like. */
  readonly signal: AbortSignal;
  /** Throws `Cancelled` if nobody wants the result any more. */
  check(): void;
  /** Tells the caller how far it is. Costs nothing if nobody listens. */
  progress(value: unknown): void;
}

/** The operation says no, with data that the caller's program can look at. */
export class OperationError extends Error {
  constructor(message: string, more?: { data?: unknown; cause?: unknown });
  readonly kind: string;
  readonly data: unknown;
}

/** The arguments are not what the operation takes. */
export class BadArguments extends OperationError {}

/** Nobody wants the result any more. */
export class Cancelled extends OperationError {
  constructor(message?: string, more?: { data?: unknown; cause?: unknown });
}
