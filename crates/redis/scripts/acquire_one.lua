-- Acquires one permit.
-- ARGV  id, max, weight, rank_offset, ttl, queue_ttl, client, owner, then of the server: run id, start time, whether it
--       keeps its data across restarts; then the pool's creation time as this client knows it
-- Replies as `acquire`, followed by the pool's creation time.
if run_id ~= ARGV[9] or created ~= ARGV[12] then
  detect_data_loss(ARGV[9], ARGV[10], ARGV[11], ARGV[12], ARGV[2])
end
if next_expiry > 0 and next_expiry <= now then
  expire_due()
  record = redis.call('HGET', pool, id)
end
local answer = acquire(id, record, tonumber(weight), tonumber(ARGV[4]), tonumber(ttl), tonumber(ARGV[6]),
  ARGV[7], ARGV[8])
notify_waiters()
save()
answer[4] = created
return answer
