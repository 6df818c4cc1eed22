-- Releases permits and removes waiters. An unknown id is no error: a repeat changes nothing.
-- ARGV  the first id, whether these are waits that timed out (1 or 0), further ids
for i = 1, #ARGV do
  local found = i ~= 2 and redis.call('HGET', pool, ARGV[i])
  if found then
    remove_permit(ARGV[i], found)
    if ARGV[2] == '1' then redis.call('HINCRBY', pool, 'timeouts', 1) end
  end
end
expire_due()
notify_waiters()
save()
return 1
