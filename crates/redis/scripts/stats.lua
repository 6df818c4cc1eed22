-- Everything that is known of a pool, read at one moment.
if not max then return {} end
tidy()
tell()
save()
local left = math.max(quarantine_left(), 0)
return {
  now, left, redis.call('HGETALL', pool), redis.call('ZRANGE', ends, 0, -1, 'WITHSCORES'),
  redis.call('ZRANGE', line, 0, -1),
}
