-- How a permit is given if there is one and nobody stands before; else a place in the line. Put behind
-- recall.lua; whoever calls it has tidied, and tells and saves at the end.

-- The first in line with its rank, and when the last one came: read once, and kept up.
local head, last

local function first_in_line()
  if waiting == 0 then return {} end
  head = head or redis.call('ZRANGE', line, 0, 0, 'WITHSCORES')
  return head
end

-- Later than everybody before, whatever the clock does.
local function comes_now()
  last = last or waiting > 0 and tonumber(redis.call('HGET', pool, 'came')) or 0
  return math.max(now, last + 1)
end

-- `record` is what was written of it; `behind` what its priority adds to its rank; one with a place of 0
-- does not wait. Answers {1, fence, waited}, {2, before, look again}, {3} full or {4, max} too heavy.
local function ask(id, record, weight, behind, ttl, place, client, owner)
  local state, came
  longest = math.max(longest, ttl)
  if record then
    local a, b, c, d, e = string.match(record, '^(%a):(%d+):(%d+):(%d+):([^:]*):')
    if a == 'h' then
      -- Its lease begins anew.
      ends_at(id, now + ttl)
      return {1, tonumber(c), tonumber(e)}
    end
    -- What it said when it came is what counts.
    state, weight, behind, came = a, tonumber(b), tonumber(c), tonumber(d)
  end

  -- Whoever does not wait, or would for ever, is not in line any more.
  local function not_in_line(answer)
    if record then
      take_out(id, record)
      head = nil
    end
    return answer
  end

  if weight > max then return not_in_line({4, max, 0}) end

  local its_head = first_in_line()
  came = came or comes_now()
  local first = not its_head[1] or its_head[1] == id
    or (not record and came + behind < tonumber(its_head[2]))

  if first and used + weight <= max and not quarantined() then
    if record then head = nil end
    local waited = grant(id, weight, ttl, record and came, owner)
    return {1, fence, waited}
  end

  if place == 0 then return not_in_line({3, 0, 0}) end

  if not record then
    last = came
    put('came', came)
    waiting = waiting + redis.call('ZADD', line, came + behind, id)
    if first then head = nil end
    state = 'w'
  elseif first then
    state = 'w'
  elseif state == 't' then
    state = 'a'
  end
  -- The client anew: a process may take over what another asked for.
  put(id, string.format('%s:%.0f:%.0f:%.0f:%s:%.0f:%s', state, weight, behind, came, client, ttl, owner))
  ends_at(id, now + place)

  -- Hints are lost sometimes, and nobody hints at what runs out. Only the first few look at that, and
  -- tell the others.
  local before = redis.call('ZRANK', line, id)
  local look = place / 2
  if before < 4 then
    look = math.min(look, nearest - now)
    if quarantined() then look = math.min(look, quarantine_left()) end
  end
  return {2, before, math.max(math.ceil(look), 1000)}
end
