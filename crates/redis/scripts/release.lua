-- Gives permits back, or leaves the line. What is not there is no error: a repeat changes nothing.
-- ARGV  the first id, whether these are waits that took too long (1 or 0), further ids
for i = 1, #ARGV do
  local found = i ~= 2 and redis.call('HGET', pool, ARGV[i])
  if found then
    take_out(ARGV[i], found)
    if ARGV[2] == '1' then redis.call('HINCRBY', pool, 'timeouts', 1) end
  end
end
tidy()
tell()
save()
return 1
