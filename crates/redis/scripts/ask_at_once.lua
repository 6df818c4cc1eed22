-- The usual case, before anything else is made ready: nobody waits, there is room, and all is as it was.
-- Differences, since Lua adds numbers that are texts but does not compare them.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local id, weight, ttl = ARGV[1], ARGV[3], ARGV[5]
if waiting == '0' and not record and run == ARGV[9] and born == ARGV[12]
  and max - used - weight >= 0 and nearest - now > 0 and now + ttl - nearest >= 0 and longest - ttl >= 0
  and (lost == '0' or now - lost - longest - 1000000 >= 0) then
  local next_fence = string.format('%.0f', fence + 1)
  redis.call('HSET', pool, 'state', string.format('%s:%.0f:0:%s:%s:%s:%s:%s:%s',
    max, used + weight, next_fence, nearest, lost, longest, born, run),
    id, string.format('h:%s:%s:%.0f:0:%s', weight, next_fence, now, ARGV[8]))
  redis.call('ZADD', ends, now + ttl, id)
  return {1, next_fence, 0, born}
end
