// The descriptors between a worker and its pool. Knows nothing of the messages.

import fs from 'node:fs';
import net from 'node:net';

const FOLDER = process.platform === 'linux' ? '/proc/self/fd' : '/dev/fd';

/**
 * The channel that the pool gave us. From here on a stray print, also one of a native module or of a
 * child process, goes to standard error, and nobody but us reads standard input.
 */
export function takeChannel() {
  const number = process.env.LONGSHORE_WORKER_FD;
  if (number !== undefined) {
    delete process.env.LONGSHORE_WORKER_FD;
    return new SocketChannel(Number(number));
  }
  return new PipeChannel();
}

/** Standard input and output. Writes are done when they return: a worker may exit at any moment. */
class PipeChannel {
  #writing;
  #reading;

  constructor() {
    this.#writing = moveAway(1, 'w', `${FOLDER}/2`);
    const reading = moveAway(0, 'r', '/dev/null');
    this.#reading = new net.Socket({ fd: reading, readable: true, writable: false });
    // Also if descriptor 1 could not be redirected, and for a console that was created before.
    process.stdout.write = process.stderr.write.bind(process.stderr);
  }

  get input() {
    return this.#reading;
  }

  write(buffers) {
    for (const buffer of buffers.length > 1 ? together(buffers) : buffers) {
      let at = 0;
      while (at < buffer.length) at += this.#some(buffer, at);
    }
  }

  #some(buffer, at) {
    try {
      return fs.writeSync(this.#writing, buffer, at);
    } catch (error) {
      if (error.code !== 'EAGAIN') throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);
      return 0;
    }
  }

  async finish() {
    this.#reading.destroy();
  }
}

/** A stream socket for both directions. */
class SocketChannel {
  #socket;

  constructor(fd) {
    this.#socket = new net.Socket({ fd, readable: true, writable: true, allowHalfOpen: true });
  }

  get input() {
    return this.#socket;
  }

  write(buffers) {
    this.#socket.cork();
    for (const buffer of buffers) this.#socket.write(buffer);
    this.#socket.uncork();
  }

  finish() {
    return new Promise((done) => {
      this.#socket.once('error', done);
      this.#socket.end(done);
    });
  }
}

/**
 * A new descriptor for what `fd` is, while `fd` itself becomes `instead`. Node has no dup: the file
 * is opened anew, and a file that is opened gets the lowest number that is free. Where that cannot
 * be done (a socket; a pipe of another user) the descriptor stays where it is.
 */
function moveAway(fd, mode, instead) {
  let moved;
  try {
    moved = fs.openSync(`${FOLDER}/${fd}`, mode);
  } catch {
    return fd;
  }
  fs.closeSync(fd);
  let placed = -1;
  try {
    placed = fs.openSync(instead, mode === 'w' ? 'a' : mode);
  } catch {
    placed = fs.openSync('/dev/null', mode);
  }
  if (placed !== fd) fs.closeSync(placed);
  return moved;
}

/** Small ones put together, so that they are one write. */
function together(buffers) {
  const size = buffers.reduce((sum, buffer) => sum + buffer.length, 0);
  return size <= 64 * 1024 ? [Buffer.concat(buffers, size)] : buffers;
}
