-- Grants a permit if enough weight is free and no waiter ranks before the request; otherwise enqueues a waiter.
-- Appended to detect_data_loss.lua. The caller has run `expire_due`, and runs `notify_waiters` and `save` at the end.

-- The first waiter with its rank, and the arrival time of the last waiter: read once, then kept current.
local head, last

local function queue_head()
  if waiting == 0 then return {} end
  head = head or redis.call('ZRANGE', waiters, 0, 0, 'WITHSCORES')
  return head
end

-- Later than every earlier arrival, even if the clock was set back.
local function next_arrival()
  last = last or waiting > 0 and tonumber(redis.call('HGET', pool, 'last_arrival')) or 0
  return math.max(now, last + 1)
end

-- `record` is the stored record of `id`, if any; `rank_offset` is what its priority adds to its rank; a request with
-- queue_ttl 0 does not wait. Replies {1, fence, waited}, {2, waiters before it, microseconds until it should ask
-- again}, {3} pool full or {4, max} heavier than the pool.
local function acquire(id, record, weight, rank_offset, ttl, queue_ttl, client, owner)
  local state, arrived_at
  max_ttl = math.max(max_ttl, ttl)
  if record then
    local a, b, c, d, e = string.match(record, '^(%a):(%d+):(%d+):(%d+):([^:]*):')
    if a == 'h' then
      -- It holds a permit already: renew the lease.
      set_expiry(id, now + ttl)
      return {1, tonumber(c), tonumber(e)}
    end
    -- Weight, rank and arrival stay as in its first request.
    state, weight, rank_offset, arrived_at = a, tonumber(b), tonumber(c), tonumber(d)
  end

  -- Removes a request that does not wait, or could wait for ever, from the queue.
  local function leave_queue(answer)
    if record then
      remove_permit(id, record)
      head = nil
    end
    return answer
  end

  if weight > max then return leave_queue({4, max, 0}) end

  local first_waiter = queue_head()
  arrived_at = arrived_at or next_arrival()
  local first = not first_waiter[1] or first_waiter[1] == id
    or (not record and arrived_at + rank_offset < tonumber(first_waiter[2]))

  if first and used + weight <= max and not quarantined() then
    if record then head = nil end
    local waited = grant(id, weight, ttl, record and arrived_at, owner)
    return {1, fence, waited}
  end

  if queue_ttl == 0 then return leave_queue({3, 0, 0}) end

  if not record then
    last = arrived_at
    put('last_arrival', arrived_at)
    waiting = waiting + redis.call('ZADD', waiters, arrived_at + rank_offset, id)
    if first then head = nil end
    state = 'w'
  elseif first then
    state = 'w'
  elseif state == 't' then
    state = 'a'
  end
  -- Write the client again: another process may continue with the same id.
  put(id, string.format('%s:%.0f:%.0f:%.0f:%s:%.0f:%s', state, weight, rank_offset, arrived_at, client, ttl, owner))
  set_expiry(id, now + queue_ttl)

  -- Notifications can get lost, and no notification is sent for an expiry. Only the first few waiters watch
  -- expiries; when they ask again they notify the others.
  local before = redis.call('ZRANK', waiters, id)
  local ask_again = queue_ttl / 2
  if before < 4 then
    ask_again = math.min(ask_again, next_expiry - now)
    if quarantined() then ask_again = math.min(ask_again, quarantine_left()) end
  end
  return {2, before, math.max(math.ceil(ask_again), 1000)}
end
