-- Gives a permit if there is one and nobody stands before; else a place in the line.
-- ARGV  id, max, weight, behind (what its priority adds to its rank), ttl, place (0: it does not wait),
--       client, owner, and of the server: run, started, trusted, the pool's birth as this client knows it
-- Answers {1, fence, waited}, {2, before, look again}, {3} full or {4, max} too heavy; then the birth.
weight, ttl = tonumber(weight), tonumber(ttl)
local behind, place = tonumber(ARGV[4]), tonumber(ARGV[6])
if run ~= ARGV[9] or born ~= ARGV[12] then
  recall(ARGV[9], ARGV[10], ARGV[11], ARGV[12], ARGV[2])
end
longest = math.max(longest, ttl)
if nearest > 0 and nearest <= now then
  tidy()
  record = redis.call('HGET', pool, id)
end

local state, came
if record then
  local a, b, c, d, e = string.match(record, '^(%a):(%d+):(%d+):(%d+):([^:]*):')
  if a == 'h' then
    -- Its lease begins anew.
    ends_at(id, now + ttl)
    save()
    return {1, tonumber(c), tonumber(e), born}
  end
  -- What it said when it came is what counts.
  state, weight, behind, came = a, tonumber(b), tonumber(c), tonumber(d)
end

-- Whoever does not wait, or would for ever, is not in line any more.
local function not_in_line(answer)
  if record then take_out(id, record) end
  tell()
  save()
  return answer
end

if weight > max then return not_in_line({4, max, 0, born}) end

local head = waiting > 0 and redis.call('ZRANGE', line, 0, 0, 'WITHSCORES') or {}
if not came then
  -- Later than everybody before, whatever the clock does.
  local last = waiting > 0 and tonumber(redis.call('HGET', pool, 'came')) or 0
  came = math.max(now, last + 1)
end
local first = not head[1] or head[1] == id or (not record and came + behind < tonumber(head[2]))

if first and used + weight <= max and not quarantined() then
  local waited = 0
  used, fence = used + weight, fence + 1
  if record then
    waiting = waiting - redis.call('ZREM', line, id)
    waited = math.max(now - came, 0)
    -- In steps that double. Those below a millisecond are not counted: they are the rest.
    local step, millis = 0, math.floor(waited / 1000)
    while millis > 0 and step < 21 do
      step, millis = step + 1, math.floor(millis / 2)
    end
    if step > 0 then redis.call('HINCRBY', pool, 'waits' .. step, 1) end
  end
  redis.call('HSET', pool, id, string.format('h:%.0f:%.0f:%.0f:%.0f:%s', weight, fence, now, waited, ARGV[8]))
  ends_at(id, now + ttl)
  tell()
  save()
  return {1, fence, waited, born}
end

if place == 0 then return not_in_line({3, 0, 0, born}) end

if not record then
  redis.call('HSET', pool, 'came', came)
  waiting = waiting + redis.call('ZADD', line, came + behind, id)
  state = 'w'
elseif first then
  state = 'w'
elseif state == 't' then
  state = 'a'
end
-- The client anew: a process may take over what another asked for.
redis.call('HSET', pool, id, string.format('%s:%.0f:%.0f:%.0f:%s:%s', state, weight, behind, came, ARGV[7], ARGV[8]))
ends_at(id, now + place)
if not first then tell() end

-- Hints are lost sometimes, and nobody hints at what runs out. Only the first few look at that, and
-- tell the others.
local before = redis.call('ZRANK', line, id)
local look = place / 2
if before < 4 then
  local soonest = tonumber(redis.call('ZRANGE', ends, 0, 0, 'WITHSCORES')[2])
  look = math.min(look, soonest - now)
  if quarantined() then look = math.min(look, lost + longest - now) end
end
save()
return {2, before, math.max(math.ceil(look), 1000), born}
