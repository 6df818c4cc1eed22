/** A client of `longshore serve`. */
export class Client {
  constructor(url?: string, options?: { token?: string });

  /**
   * Sends a unit and returns its id. A unit with the same `key` is sent once. Waits up to `room` seconds for
   * room in a full queue. Further options are fields of a unit: `queue`, `priority`, `deadline` and so on.
   */
  submit(kind: string, payload?: unknown, options?: { key?: string; room?: number; [field: string]: unknown }): Promise<string>;

  /** The current state of a unit. */
  unit(unit: string): Promise<Record<string, any>>;

  /** Waits until a unit has ended, and returns it. Throws if it has not after `limit` seconds. */
  wait(unit: string, limit?: number): Promise<Record<string, any>>;

  /** Opens a queue for the replies to AI requests. The server closes it after `ttl` seconds without a read. */
  openReplyQueue(queue?: string, options?: { ttl?: number }): Promise<ReplyQueue>;

  /** Sends any request of the API, and returns the JSON of the response. */
  ask(method: string, path: string, options?: RequestOptions): Promise<any>;
}

export interface RequestOptions {
  body?: unknown;
  query?: Record<string, string | number | undefined>;
  headers?: Record<string, string>;
  /** Seconds that the server may wait, besides the usual time limit. */
  patience?: number;
}

/** An open reply queue. */
export class ReplyQueue {
  /** Its name. */
  readonly queue: string;
  /** The field `reply_queue` of requests. */
  readonly address: { library: string; name: string };

  /**
   * Up to `limit` replies and parts of replies, oldest first. Waits up to `wait` seconds for the first one. They
   * are returned again until they are acknowledged.
   */
  read(options?: { wait?: number; limit?: number }): Promise<{ id: string; reply: any }[]>;

  /** Acknowledges replies by their ids, and returns how many were waiting for it. */
  acknowledge(...ids: string[]): Promise<number>;

  /**
   * Yields replies and parts of replies, until none arrives for `wait` seconds. Each is acknowledged when the
   * next one is asked for: one that was being processed in a crash is read again.
   */
  replies(options?: { wait?: number }): AsyncGenerator<any, void, void>;

  /** Closes the queue. Replies that are not acknowledged are cancelled. */
  close(): Promise<void>;
}

/** An error response. */
export class Problem extends Error {
  readonly status: number;
  /** Such as `not-found`. */
  readonly kind: string;
  readonly body: Record<string, any>;
}
