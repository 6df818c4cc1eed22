-- Gives permits back, or leaves the line. What is not there is no error: a repeat changes nothing.
-- ARGV  whether these are waits that took too long (1 or 0), ids
for i = 2, #ARGV do
  local id = ARGV[i]
  local record = redis.call('HGET', who, id)
  if record then
    local weight = string.match(record, '^h:(%d+):')
    if weight then
      used = used - weight
      redis.call('HSET', pool, 'used', used)
    else
      redis.call('ZREM', line, id)
    end
    redis.call('HDEL', who, id)
    redis.call('ZREM', ends, id)
    if ARGV[1] == '1' then redis.call('HINCRBY', pool, 'timeouts', 1) end
  end
end
tidy()
tell()
return 1
