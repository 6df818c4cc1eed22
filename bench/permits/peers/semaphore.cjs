// One run of redis-semaphore: TASKS PERMITS SECONDS, with its defaults but for the lease's renewal, which a
// pair is too short for.
const Redis = require('ioredis')
const { Semaphore } = require('redis-semaphore')

const [tasks, permits, seconds] = process.argv.slice(2).map(Number)
const client = new Redis(process.env.REDIS_URL)
const took = []

async function use(until) {
  for (let now = performance.now(); now < until;) {
    const semaphore = new Semaphore(client, `peer-${permits}`, permits, {
      lockTimeout: 10_000, acquireTimeout: 60_000, refreshInterval: 0,
    })
    await semaphore.acquire()
    await semaphore.release()
    const then = now
    now = performance.now()
    took.push(now - then)
  }
}

async function main() {
  await client.ping()
  const began = performance.now()
  await Promise.all(Array.from({ length: tasks }, () => use(began + seconds * 1000)))
  const all = performance.now() - began
  took.sort((a, b) => a - b)
  const at = (share) => took[Math.floor((took.length - 1) * share)] * 1000
  console.log(JSON.stringify({ rate: (took.length / all) * 1000, p50: at(0.5), p99: at(0.99) }))
  client.disconnect()
}

main()
