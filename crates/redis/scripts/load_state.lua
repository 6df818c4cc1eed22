-- Loads the pool's state. Prepended to every script.
--
-- KEYS  pool      hash: `state`, counters, and by their ids
--                 "h:weight:fence:acquired_at:waited:owner" of holders,
--                 "w:weight:rank_offset:arrived_at:client:ttl:owner" of waiters
--       expiries  sorted set: when each holder's lease and each waiter's place in the queue expire
--       waiters   sorted set: waiters by rank
-- ARGV  the first is an id, or a placeholder that is no id
--
-- Calling a command from a script, and passing each argument, costs more than the command itself. Therefore
-- scripts make few calls, and `state` holds what every script needs in one string: the maximum, the held weight,
-- the number of waiters, the last fence, a time before which nothing expires, the time of the last data loss, the
-- longest TTL, the pool's creation time, the server's run id.
--
-- Times are microseconds of the server's clock, exact in Lua's numbers. They are never concatenated with `..`,
-- which keeps only 14 digits.
local pool, expiries, waiters = KEYS[1], KEYS[2], KEYS[3]
local kept = redis.call('HMGET', pool, ARGV[1], 'state')
local record = kept[1]
local max, used, waiting, fence, next_expiry, lost_at, max_ttl, created, run_id
if kept[2] then
  max, used, waiting, fence, next_expiry, lost_at, max_ttl, created, run_id =
    string.match(kept[2], '^(%d+):(%d+):(%d+):(%d+):(%d+):(%d+):(%d+):(%d+):(.*)$')
end
