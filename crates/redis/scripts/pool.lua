-- What verbs do to a pool. Put behind open.lua, and behind what says what time it is. They change what was
-- read, and `save` writes it at the end.
max, used, waiting, fence = tonumber(max), tonumber(used) or 0, tonumber(waiting) or 0, tonumber(fence)
nearest, lost, longest = tonumber(nearest) or 0, tonumber(lost) or 0, tonumber(longest) or 0

-- A waiter whose process does not listen may be dead: its place is kept this much longer only.
local DOUBT = 1000000
-- A permit that is handed over is good for this much longer, and must be heard of within it. In
-- ask_at_once.lua it is written once more.
local HEARD = 1000000
-- So many waiters are looked at in one go; whoever of them gets a permit looks further.
local WINDOW = 32
-- So many are ended in one go. The rest counts as held until the next call.
local CHUNK = 1000

-- What is written at the end, in few commands: fields of the pool, and ends.
local fields, times = {}, {}

local function put(field, value)
  fields[#fields + 1] = field
  fields[#fields + 1] = value
end

-- Writes what is waiting to be. Before others' records or ends are read.
local function write()
  if fields[1] then redis.call('HSET', pool, unpack(fields)) end
  if times[1] then redis.call('ZADD', ends, unpack(times)) end
  fields, times = {}, {}
end

-- Writes everything, and the state if there is a pool.
local function save()
  if max then
    put('state', string.format('%.0f:%.0f:%.0f:%.0f:%.0f:%.0f:%.0f:%s:%s',
      max, used, waiting, fence, nearest, lost, longest, born, run))
  end
  write()
end

-- Sets when `id` runs out. `nearest` is never later than the first end, and 0 if there is none.
local function ends_at(id, at)
  times[#times + 1] = at
  times[#times + 1] = id
  if nearest == 0 or at < nearest then nearest = at end
end

-- How long leases that are still good may have been forgotten; nothing is given meanwhile. The longest
-- lease of the pool decides, as if it had been handed over.
local function quarantine_left()
  return lost > 0 and lost + longest + HEARD - now or 0
end

local function quarantined()
  return quarantine_left() > 0
end

-- Everything that was forgotten began before `at`. Unless the pool was reset since: then nobody holds it.
local function forgot(at)
  local cleared = tonumber(redis.call('HGET', pool, 'cleared')) or 0
  if at > cleared then lost = math.max(lost, at) end
end

-- Takes out what was written of `id`; whether it was a holder.
local function take_out(id, its_record)
  local weight = string.match(its_record, '^h:(%d+):')
  if weight then
    used = used - weight
  else
    waiting = waiting - redis.call('ZREM', line, id)
  end
  redis.call('HDEL', pool, id)
  redis.call('ZREM', ends, id)
  return weight
end

-- Ends the leases and places that ran out.
local function tidy()
  if nearest == 0 or now < nearest then return end
  write()
  local expired = 0
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', ends, '-inf', now, 'LIMIT', 0, CHUNK)) do
    if take_out(id, redis.call('HGET', pool, id)) then expired = expired + 1 end
  end
  if expired > 0 then redis.call('HINCRBY', pool, 'expired', expired) end
  nearest = tonumber(redis.call('ZRANGE', ends, 0, 0, 'WITHSCORES')[2]) or 0
end

-- Counts a wait, in steps that double. Those below a millisecond are not counted: they are the rest.
local function count_wait(waited)
  local step, millis = 0, math.floor(waited / 1000)
  while millis > 0 and step < 21 do
    step, millis = step + 1, math.floor(millis / 2)
  end
  if step > 0 then redis.call('HINCRBY', pool, 'waits' .. step, 1) end
end

-- Gives a permit to one that came into the line at `came`, or not at all; how long it waited.
local function grant(id, weight, ttl, came, owner)
  local waited = 0
  used, fence = used + weight, fence + 1
  if came then
    waiting = waiting - redis.call('ZREM', line, id)
    waited = math.max(now - came, 0)
    count_wait(waited)
  end
  put(id, string.format('h:%.0f:%.0f:%.0f:%.0f:%s', weight, fence, now, waited, owner))
  ends_at(id, now + ttl)
  return waited
end

-- The caller's own process hears with the answer who of it is to ask again, and who has a permit now.
local caller, hands_over, told, handed = nil, false, {}, {}

-- Tells a waiter's process; how many heard it. Where publishing is forbidden there are no hints, but
-- permits all the same.
local function hint(client, id)
  if client == caller then
    told[#told + 1] = id
    return 1
  end
  local name = string.match(pool, '{longshore:pool:(.*)}')
  return redis.pcall('PUBLISH', 'longshore:turns:' .. client, name .. ' ' .. id)
end

-- Those who are next get a permit if they are of the caller's process and awake. The others are told
-- that it is worth asking, each once: "w" was not told, "t" was, "a" has asked since but others stand
-- before it: it is told again when it is first. Else two who stand behind one that sleeps would wake each
-- other for as long as it does.
local function tell()
  local free = max and max - used or 0
  if waiting == 0 or free < 1 or quarantined() then return end
  write()
  local at = 0
  for _ = 1, math.min(waiting, WINDOW) do
    local id = redis.call('ZRANGE', line, at, at)[1]
    local its_record = redis.call('HGET', pool, id)
    local state, weight, came, client, ttl, owner =
      string.match(its_record, '^(%a):(%d+):%d+:(%d+):([^:]*):(%d+):(.*)$')
    if not state then
      -- Of an older version: it is told, and never handed one.
      state, weight, client = string.match(its_record, '^(%a):(%d+):%d+:%d+:([^:]*):')
    end
    free = free - weight
    if free < 0 then return end
    if hands_over and ttl and at == 0 and client == caller then
      -- It may hear of it as late as HEARD.
      local waited = grant(id, tonumber(weight), ttl + HEARD, tonumber(came), owner)
      handed[#handed + 1] = {id, fence, waited}
    else
      at = at + 1
      if state == 'w' or (state == 'a' and at == 1) then
        redis.call('HSET', pool, id, 't' .. string.sub(its_record, 2))
        if hint(client, id) == 0 then
          local its_end = tonumber(redis.call('ZSCORE', ends, id))
          ends_at(id, math.min(its_end, now + DOUBT))
          free = free + weight
        end
      end
    end
    if free < 1 then return end
  end
end
