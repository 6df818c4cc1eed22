-- What every verb begins with: the pool as it stands now. Put in front of each script.
--
-- KEYS  pool  hash: `state`, figures, and by their ids
--             "h:weight:fence:since:waited:owner" of holders,
--             "w:weight:behind:came:client:ttl:owner" of waiters
--       ends  sorted set: when each holder's lease and each waiter's place run out
--       line  sorted set: waiters by rank
-- ARGV  the first is an id, or any word that is none
--
-- A command, and each word of it, costs more for being called from a script than for what it does. So
-- there are few, and what every verb needs is one word: the maximum, the weight that is held, how many
-- wait, the last fence, a time before which nothing runs out, when leases were forgotten, the longest of
-- them, the pool's birth, the server's run.
--
-- Times are microseconds of the server's clock, exact in Lua's numbers. They are never joined to text
-- with `..`, which keeps 14 digits only.
local pool, ends, line = KEYS[1], KEYS[2], KEYS[3]
local kept = redis.call('HMGET', pool, ARGV[1], 'state')
local record = kept[1]
local max, used, waiting, fence, nearest, lost, longest, born, run
if kept[2] then
  max, used, waiting, fence, nearest, lost, longest, born, run =
    string.match(kept[2], '^(%d+):(%d+):(%d+):(%d+):(%d+):(%d+):(%d+):(%d+):(.*)$')
end
