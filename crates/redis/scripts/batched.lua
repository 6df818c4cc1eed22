-- Runs the requests that one process has coalesced: first the releases, then the acquires.
-- ARGV  a placeholder, max, client, then of the server: run id, start time, whether it keeps its data; the
--       pool's creation time as this client knows it; whether all waiters of the process are listening (1 or
--       0); the number of released ids, and each with whether its wait timed out (1 or 0); then of each
--       acquire: id, weight, rank_offset, ttl, queue_ttl, owner
-- Replies with the creation time, the ids of this process that should ask again, the permits that were granted
-- to its waiters (id, fence, waited), and one reply per acquire.
caller, may_grant = ARGV[3], ARGV[8] == '1'
local RELEASES, ACQUIRES = 9, 9 + 2 * ARGV[9]
if max or ARGV[ACQUIRES + 1] then
  if run_id ~= ARGV[4] or created ~= ARGV[7] then
    detect_data_loss(ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[2])
  end
end

local ids = {}
for i = RELEASES + 1, ACQUIRES, 2 do ids[#ids + 1] = ARGV[i] end
for i = ACQUIRES + 1, #ARGV, 6 do ids[#ids + 1] = ARGV[i] end
local records = {}
for first = 1, #ids, MAX_VALUES do
  local part = redis.call('HMGET', pool, unpack(ids, first, math.min(first + MAX_VALUES - 1, #ids)))
  for i = 1, #part do records[first + i - 1] = part[i] end
end

-- An id may occur twice: its record counts once.
local gone, late, seen = {}, 0, {}
for i = 1, (ACQUIRES - RELEASES) / 2 do
  local id, its_record = ids[i], records[i]
  if its_record and not seen[id] then
    seen[id] = true
    local weight = string.match(its_record, '^h:(%d+):')
    if weight then
      used = used - weight
    else
      waiting = waiting - redis.call('ZREM', waiters, id)
    end
    gone[#gone + 1] = id
    late = late + ARGV[RELEASES + 2 * i]
  end
end
call_in_parts('HDEL', pool, gone)
call_in_parts('ZREM', expiries, gone)
if late > 0 then redis.call('HINCRBY', pool, 'timeouts', late) end
expire_due()

-- Requests that already wait come before new ones, in queue order.
local order, ranks = {}, {}
for i = 1, (#ARGV - ACQUIRES) / 6 do
  local its_record = records[(ACQUIRES - RELEASES) / 2 + i]
  order[i] = i
  local rank_offset, arrived_at = string.match(its_record or '', '^%l:%d+:(%d+):(%d+):')
  ranks[i] = arrived_at and rank_offset + arrived_at or math.huge
end
if waiting > 0 then
  table.sort(order, function(a, b) return ranks[a] < ranks[b] or (ranks[a] == ranks[b] and a < b) end)
end

local answers = {}
for _, i in ipairs(order) do
  local at = ACQUIRES + 6 * (i - 1)
  local id = ARGV[at + 1]
  local its_record = records[(ACQUIRES - RELEASES) / 2 + i]
  -- Its record may have expired, been notified or been replied to above.
  if its_record or seen[id] then
    write()
    its_record = redis.call('HGET', pool, id)
  end
  seen[id] = true
  answers[i] = acquire(id, its_record, tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]),
    tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5]), caller, ARGV[at + 6])
end
notify_waiters()
save()
return {created or '', notified, granted, answers}
