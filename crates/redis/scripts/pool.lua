-- What every verb begins with: the pool as it stands now. Put in front of each script.
--
-- KEYS  pool  hash: the maximum, the weight that is held, figures
--       ends  sorted set: when each holder's lease and each waiter's place run out
--       who   hash: "h:weight:fence:since:waited:owner" of holders,
--             "w:weight:behind:came:client:owner" of waiters
--       line  sorted set: waiters by rank
--
-- Times are microseconds of the server's clock, exact in Lua's numbers. They are never joined to text
-- with `..`, which keeps 14 digits only.
local pool, ends, who, line = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local kept = redis.call('HMGET', pool, 'max', 'used', 'nearest', 'lost', 'longest', 'born', 'run', 'fence')
local max, used, nearest = tonumber(kept[1]), tonumber(kept[2]) or 0, tonumber(kept[3])
local lost, longest = tonumber(kept[4]), tonumber(kept[5]) or 0

-- A waiter whose process does not listen may be dead: its place is kept this much longer only.
local DOUBT = 1000000
-- So many waiters are looked at in one go; whoever of them gets a permit looks further.
local WINDOW = 32
-- So many are ended in one go. The rest counts as held until the next call.
local CHUNK = 1000

-- Sets when `id` runs out. `nearest` is never later than the first end: until then, nobody has to look.
local function ends_at(id, at)
  redis.call('ZADD', ends, at, id)
  if not nearest or at < nearest then
    nearest = at
    redis.call('HSET', pool, 'nearest', at)
  end
end

-- The longest lease of this pool decides how long forgotten ones may still be good.
local function lasts(ttl)
  if ttl > longest then
    longest = ttl
    redis.call('HSET', pool, 'longest', ttl)
  end
end

-- Whether leases that are still good may have been forgotten: nothing is given then.
local function quarantined()
  return lost and now < lost + longest
end

-- Everything that was forgotten began before `at`. Unless the pool was reset since: then nobody holds it.
local function forgot(at)
  local cleared = tonumber(redis.call('HGET', pool, 'cleared')) or 0
  if at > cleared and (not lost or at > lost) then
    lost = at
    redis.call('HSET', pool, 'lost', at)
  end
end

-- Ends the leases and places that ran out.
local function tidy()
  if not nearest or now < nearest then return end
  local expired = 0
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', ends, '-inf', now, 'LIMIT', 0, CHUNK)) do
    local weight = string.match(redis.call('HGET', who, id) or '', '^h:(%d+):')
    if weight then
      used = used - weight
      expired = expired + 1
    else
      redis.call('ZREM', line, id)
    end
    redis.call('HDEL', who, id)
    redis.call('ZREM', ends, id)
  end
  if expired > 0 then
    redis.call('HSET', pool, 'used', used)
    redis.call('HINCRBY', pool, 'expired', expired)
  end
  nearest = tonumber(redis.call('ZRANGE', ends, 0, 0, 'WITHSCORES')[2])
  if nearest then
    redis.call('HSET', pool, 'nearest', nearest)
  else
    redis.call('HDEL', pool, 'nearest')
  end
end

-- Tells a waiter's process; how many heard it. Where publishing is forbidden there are no hints, but
-- permits all the same.
local function hint(client, id)
  local name = string.match(pool, '{longshore:pool:(.*)}')
  return redis.pcall('PUBLISH', 'longshore:turns:' .. client, name .. ' ' .. id)
end

-- Tells those who are next that it is worth asking, each once: "w" was not told, "t" was, "a" has asked
-- since but others stand before it: it is told again when it is first. Else two who stand behind one
-- that sleeps would wake each other for as long as it does.
local function tell()
  local free = max and max - used or 0
  if free < 1 or quarantined() then return end
  for i = 0, WINDOW - 1 do
    local id = redis.call('ZRANGE', line, i, i)[1]
    if not id then return end
    local record = redis.call('HGET', who, id)
    local state, weight, client = string.match(record, '^(%a):(%d+):%d+:%d+:([^:]*):')
    weight = tonumber(weight)
    free = free - weight
    if free < 0 then return end
    if state == 'w' or (state == 'a' and i == 0) then
      redis.call('HSET', who, id, 't' .. string.sub(record, 2))
      if hint(client, id) == 0 then
        local at = tonumber(redis.call('ZSCORE', ends, id))
        ends_at(id, math.min(at, now + DOUBT))
        free = free + weight
      end
    end
    if free < 1 then return end
  end
end
