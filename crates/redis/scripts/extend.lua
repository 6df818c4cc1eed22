-- Renews leases; replies with the ids that are not held any more.
-- ARGV  a placeholder, ttl, the pool's creation time as this client knows it, ids
local ttl, known = tonumber(ARGV[2]), ARGV[3]
-- After a data loss a holder may be the first client to notice: leave a note for the next `acquire`.
if not max and known ~= '' then
  redis.call('HSET', pool, 'data_loss_report', string.format('%.0f:%.0f', now, ttl))
elseif max and known ~= '' and known ~= created then
  record_data_loss(tonumber(created))
end
max_ttl = math.max(max_ttl, ttl)
expire_due()
local gone = {}
for i = 4, #ARGV do
  local id = ARGV[i]
  if string.sub(redis.call('HGET', pool, id) or '', 1, 1) == 'h' then
    set_expiry(id, now + ttl)
  else
    gone[#gone + 1] = id
  end
end
notify_waiters()
save()
return gone
