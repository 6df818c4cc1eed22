-- Sets the maximum. What is held stays held.
-- ARGV  max, and of the server: run, started, trusted, the pool's birth as this client knows it
recall(ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[1])
local smaller = tonumber(ARGV[1]) < max
max = tonumber(ARGV[1])
redis.call('HSET', pool, 'max', max)
tidy()
if smaller then
  -- Those who are too heavy now would be in the way for ever. They are told, and hear why when they ask.
  for _, id in ipairs(redis.call('ZRANGE', line, 0, -1)) do
    local weight, client = string.match(redis.call('HGET', who, id), '^%a:(%d+):%d+:%d+:([^:]*):')
    if tonumber(weight) > max then
      redis.call('ZREM', line, id)
      redis.call('ZREM', ends, id)
      redis.call('HDEL', who, id)
      hint(client, id)
    end
  end
end
tell()
return kept[6]
