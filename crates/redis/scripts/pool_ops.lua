-- Operations on a pool, for all scripts. Appended to load_state.lua and a script that sets `now`. They change the
-- loaded variables; `save` writes them at the end.
max, used, waiting, fence = tonumber(max), tonumber(used) or 0, tonumber(waiting) or 0, tonumber(fence)
next_expiry, lost_at, max_ttl = tonumber(next_expiry) or 0, tonumber(lost_at) or 0, tonumber(max_ttl) or 0

-- If no process of a waiter's client subscribes, the waiter may be dead: its place expires after this time.
local UNHEARD_GRACE = 1000000
-- A permit granted to a waiter through another request's reply gets this much added to its TTL; the waiter must
-- receive it within this time. acquire_fast.lua repeats the value.
local HANDOVER_GRACE = 1000000
-- Waiters examined in one call. A notified waiter that gets a permit examines further ones.
local MAX_NOTIFIED = 32
-- Records expired in one call. The rest counts as held until the next call.
local MAX_EXPIRED = 1000

-- Values that one command gets at most: `unpack` fails above 8,000. Even, because some lists consist of pairs.
local MAX_VALUES = 4000

-- Calls a command with these values, in as many parts as needed.
local function call_in_parts(command, key, values)
  for first = 1, #values, MAX_VALUES do
    redis.call(command, key, unpack(values, first, math.min(first + MAX_VALUES - 1, #values)))
  end
end

-- Buffered writes, sent in few commands at the end: fields of the pool, and expiries.
local fields, times = {}, {}

local function put(field, value)
  fields[#fields + 1] = field
  fields[#fields + 1] = value
end

-- Writes the buffers. Call it before reading other records or expiries.
local function write()
  call_in_parts('HSET', pool, fields)
  call_in_parts('ZADD', expiries, times)
  fields, times = {}, {}
end

-- Writes the buffers, and the state if the pool exists.
local function save()
  if max then
    put('state', string.format('%.0f:%.0f:%.0f:%.0f:%.0f:%.0f:%.0f:%s:%s',
      max, used, waiting, fence, next_expiry, lost_at, max_ttl, created, run_id))
  end
  write()
end

-- Sets the expiry of `id`. `next_expiry` is never later than the earliest expiry, and 0 if there is none.
local function set_expiry(id, at)
  times[#times + 1] = at
  times[#times + 1] = id
  if next_expiry == 0 or at < next_expiry then next_expiry = at end
end

-- Microseconds for which leases that were lost with the server's data may still be valid; nothing is granted
-- until then. The longest TTL of the pool counts, with HANDOVER_GRACE added.
local function quarantine_left()
  return lost_at > 0 and lost_at + max_ttl + HANDOVER_GRACE - now or 0
end

local function quarantined()
  return quarantine_left() > 0
end

-- Records a loss of leases that began before `at`, unless the pool was reset since: then no holder is left.
local function record_data_loss(at)
  local reset_at = tonumber(redis.call('HGET', pool, 'reset_at')) or 0
  if at > reset_at then lost_at = math.max(lost_at, at) end
end

-- Removes the record of `id`; returns its weight if it was a holder.
local function remove_permit(id, its_record)
  local weight = string.match(its_record, '^h:(%d+):')
  if weight then
    used = used - weight
  else
    waiting = waiting - redis.call('ZREM', waiters, id)
  end
  redis.call('HDEL', pool, id)
  redis.call('ZREM', expiries, id)
  return weight
end

-- Removes the leases and places that expired.
local function expire_due()
  if next_expiry == 0 or now < next_expiry then return end
  write()
  local expired = 0
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', expiries, '-inf', now, 'LIMIT', 0, MAX_EXPIRED)) do
    if remove_permit(id, redis.call('HGET', pool, id)) then expired = expired + 1 end
  end
  if expired > 0 then redis.call('HINCRBY', pool, 'expired', expired) end
  next_expiry = tonumber(redis.call('ZRANGE', expiries, 0, 0, 'WITHSCORES')[2]) or 0
end

-- Counts a wait in a bucket of doubling width. Waits below a millisecond are not counted; stats derive them.
local function count_wait(waited)
  local step, millis = 0, math.floor(waited / 1000)
  while millis > 0 and step < 21 do
    step, millis = step + 1, math.floor(millis / 2)
  end
  if step > 0 then redis.call('HINCRBY', pool, 'waits' .. step, 1) end
end

-- Grants a permit to a request that was enqueued at `arrived_at`, or never enqueued (nil). Returns how long it waited.
local function grant(id, weight, ttl, arrived_at, owner)
  local waited = 0
  used, fence = used + weight, fence + 1
  if arrived_at then
    waiting = waiting - redis.call('ZREM', waiters, id)
    waited = math.max(now - arrived_at, 0)
    count_wait(waited)
  end
  put(id, string.format('h:%.0f:%.0f:%.0f:%.0f:%s', weight, fence, now, waited, owner))
  set_expiry(id, now + ttl)
  return waited
end

-- The calling process learns from the reply which of its waiters should ask again, and which were granted a permit.
local caller, may_grant, notified, granted = nil, false, {}, {}

-- Notifies a waiter's process; returns the number of subscribers. Where an ACL forbids PUBLISH there are no
-- notifications, but permits are granted all the same.
local function notify(client, id)
  if client == caller then
    notified[#notified + 1] = id
    return 1
  end
  local name = string.match(pool, '{longshore:pool:(.*)}')
  return redis.pcall('PUBLISH', 'longshore:turns:' .. client, name .. ' ' .. id)
end

-- Grants permits to the first waiters if they belong to the calling process and it is listening. Notifies the
-- others that they should ask again, each once: state "w" is not notified, "t" is notified, "a" has asked since
-- but is not first, and is notified again when it becomes first. Otherwise two waiters behind a waiter that does
-- not react would keep waking each other.
local function notify_waiters()
  local free = max and max - used or 0
  if waiting == 0 or free < 1 or quarantined() then return end
  write()
  local at = 0
  for _ = 1, math.min(waiting, MAX_NOTIFIED) do
    local id = redis.call('ZRANGE', waiters, at, at)[1]
    local its_record = redis.call('HGET', pool, id)
    local state, weight, arrived_at, client, ttl, owner =
      string.match(its_record, '^(%a):(%d+):%d+:(%d+):([^:]*):(%d+):(.*)$')
    if not state then
      -- Written by an older version: notify it, never grant to it.
      state, weight, client = string.match(its_record, '^(%a):(%d+):%d+:%d+:([^:]*):')
    end
    free = free - weight
    if free < 0 then return end
    if may_grant and ttl and at == 0 and client == caller then
      -- The waiter may learn of it as late as HANDOVER_GRACE.
      local waited = grant(id, tonumber(weight), ttl + HANDOVER_GRACE, tonumber(arrived_at), owner)
      granted[#granted + 1] = {id, fence, waited}
    else
      at = at + 1
      if state == 'w' or (state == 'a' and at == 1) then
        redis.call('HSET', pool, id, 't' .. string.sub(its_record, 2))
        if notify(client, id) == 0 then
          local its_end = tonumber(redis.call('ZSCORE', expiries, id))
          set_expiry(id, math.min(its_end, now + UNHEARD_GRACE))
          free = free + weight
        end
      end
    end
    if free < 1 then return end
  end
end
