-- Removes holders, waiters and counters, and ends a quarantine. For operators that know the holders are gone.
if not max then return 0 end
-- Waiters must ask again to get a new place.
for _, id in ipairs(redis.call('ZRANGE', waiters, 0, MAX_EXPIRED - 1)) do
  local client = string.match(redis.call('HGET', pool, id), '^%a:%d+:%d+:%d+:([^:]*):')
  notify(client, id)
end
local about, last_arrival = unpack(redis.call('HMGET', pool, 'about', 'last_arrival'))
redis.call('DEL', pool, expiries, waiters)
used, waiting, next_expiry, lost_at = 0, 0, 0, 0
redis.call('HSET', pool, 'first_fence', fence, 'reset_at', now, 'last_arrival', last_arrival or 0, 'about', about)
save()
return 1
