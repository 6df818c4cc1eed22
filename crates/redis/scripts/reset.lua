-- Forgets holders, waiters and figures, and ends a quarantine: the holders are known to be gone.
if not max then return 0 end
-- Whoever waits is to stand in line anew.
for _, id in ipairs(redis.call('ZRANGE', line, 0, CHUNK - 1)) do
  local client = string.match(redis.call('HGET', who, id), '^%a:%d+:%d+:%d+:([^:]*):')
  hint(client, id)
end
redis.call('DEL', ends, who, line)
redis.call('HDEL', pool, 'nearest', 'lost', 'timeouts', 'expired')
for step = 1, 21 do redis.call('HDEL', pool, 'waits' .. step) end
redis.call('HSET', pool, 'used', 0, 'first', kept[8], 'cleared', now)
return 1
