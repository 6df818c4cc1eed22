-- Begins leases anew, and answers with those that are not held any more.
-- ARGV  a word, ttl, the pool's birth as this client knows it, ids
local ttl, known = tonumber(ARGV[2]), ARGV[3]
-- Where everything was forgotten, a holder may be the first to know: for whoever asks next.
if not max and known ~= '' then
  redis.call('HSET', pool, 'forgot', string.format('%.0f:%.0f', now, ttl))
elseif max and known ~= '' and known ~= born then
  forgot(tonumber(born))
end
longest = math.max(longest, ttl)
tidy()
local gone = {}
for i = 4, #ARGV do
  local id = ARGV[i]
  if string.sub(redis.call('HGET', pool, id) or '', 1, 1) == 'h' then
    ends_at(id, now + ttl)
  else
    gone[#gone + 1] = id
  end
end
tell()
save()
return gone
