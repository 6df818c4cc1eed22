-- What gathered in one process: first what is given back, then what is asked for.
-- ARGV  a word, max, client, and of the server: run, started, trusted, the pool's birth as this client
--       knows it; whether all who wait in the process are awake (1 or 0); the number of ids that are given
--       back, and these with whether they waited too long (1 or 0); then of each ask: id, weight, behind,
--       ttl, place, owner
-- Answers with the birth, those of this process that are to ask again, those that were handed a permit
-- (id, fence, waited), and an answer for each ask.
caller, hands_over = ARGV[3], ARGV[8] == '1'
local BACK, ASKS = 9, 9 + 2 * ARGV[9]
if max or ARGV[ASKS + 1] then
  if run ~= ARGV[4] or born ~= ARGV[7] then
    recall(ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[2])
  end
end

local ids = {}
for i = BACK + 1, ASKS, 2 do ids[#ids + 1] = ARGV[i] end
for i = ASKS + 1, #ARGV, 6 do ids[#ids + 1] = ARGV[i] end
local records = ids[1] and redis.call('HMGET', pool, unpack(ids)) or {}

-- One id may be named twice: what was read of it counts once.
local gone, late, seen = {}, 0, {}
for i = 1, (ASKS - BACK) / 2 do
  local id, its_record = ids[i], records[i]
  if its_record and not seen[id] then
    seen[id] = true
    local weight = string.match(its_record, '^h:(%d+):')
    if weight then
      used = used - weight
    else
      waiting = waiting - redis.call('ZREM', line, id)
    end
    gone[#gone + 1] = id
    late = late + ARGV[BACK + 2 * i]
  end
end
if gone[1] then
  redis.call('HDEL', pool, unpack(gone))
  redis.call('ZREM', ends, unpack(gone))
end
if late > 0 then redis.call('HINCRBY', pool, 'timeouts', late) end
tidy()

-- Those who waited before those who come, in the order of the line.
local order, ranks = {}, {}
for i = 1, (#ARGV - ASKS) / 6 do
  local its_record = records[(ASKS - BACK) / 2 + i]
  order[i] = i
  local behind, came = string.match(its_record or '', '^%l:%d+:(%d+):(%d+):')
  ranks[i] = came and behind + came or math.huge
end
if waiting > 0 then
  table.sort(order, function(a, b) return ranks[a] < ranks[b] or (ranks[a] == ranks[b] and a < b) end)
end

local answers = {}
for _, i in ipairs(order) do
  local at = ASKS + 6 * (i - 1)
  local id = ARGV[at + 1]
  local its_record = records[(ASKS - BACK) / 2 + i]
  -- It may have run out, been told or been answered since.
  if its_record or seen[id] then
    write()
    its_record = redis.call('HGET', pool, id)
  end
  seen[id] = true
  answers[i] = ask(id, its_record, tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]),
    tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5]), caller, ARGV[at + 6])
end
tell()
save()
return {born or '', told, handed, answers}
