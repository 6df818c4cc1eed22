-- Fast path before anything else is prepared: no waiters, enough free weight, and nothing expired or restarted.
-- Compares by subtraction, because Lua subtracts numbers stored as strings but does not compare them.
-- 1000000 is HANDOVER_GRACE of pool_ops.lua.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local id, weight, ttl = ARGV[1], ARGV[3], ARGV[5]
if waiting == '0' and not record and run_id == ARGV[9] and created == ARGV[12]
  and max - used - weight >= 0 and next_expiry - now > 0 and now + ttl - next_expiry >= 0 and max_ttl - ttl >= 0
  and (lost_at == '0' or now - lost_at - max_ttl - 1000000 >= 0) then
  local next_fence = string.format('%.0f', fence + 1)
  redis.call('HSET', pool, 'state', string.format('%s:%.0f:0:%s:%s:%s:%s:%s:%s',
    max, used + weight, next_fence, next_expiry, lost_at, max_ttl, created, run_id),
    id, string.format('h:%s:%s:%.0f:0:%s', weight, next_fence, now, ARGV[8]))
  redis.call('ZADD', expiries, now + ttl, id)
  return {1, next_fence, 0, created}
end
