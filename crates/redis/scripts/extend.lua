-- Begins leases anew, and answers with those that are not held any more.
-- ARGV  ttl, the pool's birth as this client knows it, ids
local ttl, born = tonumber(ARGV[1]), ARGV[2]
if born ~= '' and born ~= kept[6] then
  -- Everything was forgotten, and a holder is the first to know: for whoever asks next.
  forgot(tonumber(kept[6]) or now)
end
lasts(ttl)
tidy()
local gone = {}
for i = 3, #ARGV do
  local id = ARGV[i]
  if string.sub(redis.call('HGET', who, id) or '', 1, 1) == 'h' then
    ends_at(id, now + ttl)
  else
    gone[#gone + 1] = id
  end
end
tell()
return gone
