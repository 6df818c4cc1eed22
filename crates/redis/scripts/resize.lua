-- Sets the maximum. Held permits stay held.
-- ARGV  a placeholder, max, then of the server: run id, start time, whether it keeps its data; the pool's
--       creation time as this client knows it
detect_data_loss(ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[2])
local smaller = tonumber(ARGV[2]) < max
max = tonumber(ARGV[2])
expire_due()
if smaller then
  -- A waiter heavier than the new maximum would block the queue for ever: remove and notify it; its next request
  -- gets the reason.
  for _, id in ipairs(redis.call('ZRANGE', waiters, 0, -1)) do
    local heavy = redis.call('HGET', pool, id)
    local weight, client = string.match(heavy, '^%a:(%d+):%d+:%d+:([^:]*):')
    if tonumber(weight) > max then
      remove_permit(id, heavy)
      notify(client, id)
    end
  end
end
notify_waiters()
save()
return created
