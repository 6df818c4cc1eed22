-- Sets the maximum. What is held stays held.
-- ARGV  a word, max, and of the server: run, started, trusted, the pool's birth as this client knows it
recall(ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[2])
local smaller = tonumber(ARGV[2]) < max
max = tonumber(ARGV[2])
tidy()
if smaller then
  -- Those who are too heavy now would be in the way for ever. They are told, and hear why when they ask.
  for _, id in ipairs(redis.call('ZRANGE', line, 0, -1)) do
    local heavy = redis.call('HGET', pool, id)
    local weight, client = string.match(heavy, '^%a:(%d+):%d+:%d+:([^:]*):')
    if tonumber(weight) > max then
      take_out(id, heavy)
      hint(client, id)
    end
  end
end
tell()
save()
return born
