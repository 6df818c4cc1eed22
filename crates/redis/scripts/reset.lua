-- Forgets holders, waiters and figures, and ends a quarantine: the holders are known to be gone.
if not max then return 0 end
-- Whoever waits is to stand in line anew.
for _, id in ipairs(redis.call('ZRANGE', line, 0, CHUNK - 1)) do
  local client = string.match(redis.call('HGET', pool, id), '^%a:%d+:%d+:%d+:([^:]*):')
  hint(client, id)
end
local about, came = unpack(redis.call('HMGET', pool, 'about', 'came'))
redis.call('DEL', pool, ends, line)
used, waiting, nearest, lost = 0, 0, 0, 0
redis.call('HSET', pool, 'first', fence, 'cleared', now, 'came', came or 0, 'about', about)
save()
return 1
