-- Returns everything known about a pool, read at one moment.
if not max then return {} end
expire_due()
notify_waiters()
save()
local left = math.max(quarantine_left(), 0)
return {
  now, left, redis.call('HGETALL', pool), redis.call('ZRANGE', expiries, 0, -1, 'WITHSCORES'),
  redis.call('ZRANGE', waiters, 0, -1),
}
