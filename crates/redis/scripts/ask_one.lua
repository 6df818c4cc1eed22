-- One ask.
-- ARGV  id, max, weight, behind, ttl, place, client, owner, and of the server: run, started, trusted, the
--       pool's birth as this client knows it
-- Answers as `ask`, and then the birth.
if run ~= ARGV[9] or born ~= ARGV[12] then
  recall(ARGV[9], ARGV[10], ARGV[11], ARGV[12], ARGV[2])
end
if nearest > 0 and nearest <= now then
  tidy()
  record = redis.call('HGET', pool, id)
end
local answer = ask(id, record, tonumber(weight), tonumber(ARGV[4]), tonumber(ttl), tonumber(ARGV[6]),
  ARGV[7], ARGV[8])
tell()
save()
answer[4] = born
return answer
