// Errors that an operation may throw to give details, and how any thrown value is encoded for the
// pool: kind, message, chain of causes, data.

// Keeps the beginning of a stack: that is where the error occurred.
const STACK_LIMIT = 8_000;
const CHAIN_LIMIT = 16;

/** The operation says no, with data that the caller's program can look at. */
export class OperationError extends Error {
  kind = 'handler';

  constructor(message, { data, cause } = {}) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = new.target.name;
    this.data = data;
  }
}

/** The arguments are not what the operation takes. */
export class BadArguments extends OperationError {
  kind = 'bad_arguments';
}

/** Nobody wants the result any more. */
export class Cancelled extends OperationError {
  kind = 'cancelled';

  constructor(message = 'cancelled', more) {
    super(message, more);
  }
}

/** The fields of an `error` message. What is thrown may throw when it is looked at. */
export function describe(error) {
  try {
    return told(error);
  } catch {
    return { kind: 'handler', message: words(error) };
  }
}

function told(error) {
  const about = { kind: 'handler', message: words(error) };
  const chain = causes(error);
  if (chain.length > 0) about.chain = chain;
  if (error instanceof OperationError) {
    about.kind = error.kind;
    if (error.data !== undefined) about.data = error.data;
  } else if (error?.name === 'AbortError') {
    // What `fetch` and its like throw when the call's signal aborted them.
    about.kind = 'cancelled';
  } else if (error instanceof Error) {
    about.data = { type: error.name, stack: String(error.stack).slice(0, STACK_LIMIT) };
  }
  return about;
}

/** Anything at all can be thrown, also what cannot be made a string. */
function words(thrown) {
  try {
    if (!(thrown instanceof Error)) return String(thrown);
    const plain = thrown instanceof OperationError || thrown.name === 'Error';
    return plain ? `${thrown.message || thrown.name}` : `${thrown.name}: ${thrown.message}`;
  } catch {
    return 'something without words was thrown';
  }
}

/** The causes, outermost first. Causes can go in circles. */
function causes(error) {
  const seen = new Set([error]);
  const chain = [];
  let cause = error?.cause;
  while (cause !== undefined && cause !== null && !seen.has(cause) && chain.length < CHAIN_LIMIT) {
    seen.add(cause);
    chain.push(words(cause));
    cause = cause.cause;
  }
  return chain;
}
