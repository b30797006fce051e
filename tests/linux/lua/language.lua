-- Coroutines, closures, strings, tables, the collector, errors, files, pipes and the clock.

local function generate(count)
  return coroutine.wrap(function()
    for number = 1, count do coroutine.yield(number * number) end
  end)
end

local sum = 0
for square in generate(1000) do sum = sum + square end
print("squares", sum)

-- Many coroutines in turn: each has a stack of its own.
local ring = {}
for index = 1, 200 do
  ring[index] = coroutine.create(function(value)
    while true do value = coroutine.yield(value + index) end
  end)
end
local value = 0
for _ = 1, 50 do
  for index = 1, #ring do
    local _, answer = coroutine.resume(ring[index], value)
    value = answer
  end
end
print("ring", value)

-- Strings: formats, patterns, floats as C's library prints them.
print(string.format("%5.2f|%-8s|%08.3e|%q|%x|%g", math.pi, "left", 12345.678, "a\nb", 48879, 1e100))
print(("the quick brown fox"):gsub("%w+", function(word) return word:reverse() end))
for key, word in ("a=1, b=2, c=3"):gmatch("(%w+)=(%w+)") do io.write(key, ":", word, " ") end
print()
print(1 // 0.0, -1 % 5, 7 // -2, 2 ^ 0.5, 1 << 62, math.maxinteger + 1 == math.mininteger)

-- Tables with millions of accesses, sorted; garbage of which little stays.
local list = {}
local seed = 1
for index = 1, 20000 do
  seed = seed * 1103515245 + 12345 & 0x7fffffff
  list[index] = seed
end
table.sort(list)
print("sorted", list[1], list[10000], list[20000])
local kept = {}
for index = 1, 100000 do
  local item = { index, tostring(index) }
  if index % 1000 == 0 then kept[#kept + 1] = item[2] end
end
collectgarbage()
print("kept", #kept, kept[100], collectgarbage("count") < 20000)

-- Errors, their way up, and values closed on it.
print(select("#", pcall(function()
  local guard <close> = setmetatable({}, { __close = function() print("closed") end })
  error({ code = 42 })
end)))
print(select(2, pcall(error, "plain", 0)))
print(select("#", xpcall(function() return nil + 1 end, function(message)
  print((message:gsub("^.-:%d+: ", "")))
  return 1, 2
end)))

-- Files and pipes.
local name = "/tmp/lua-test"
local file <const> = assert(io.open(name, "w"))
for number = 1, 3000 do file:write("line ", number, "\n") end
file:seek("set", 0)
file:close()
local count = 0
for line in io.lines(name) do count = count + #line end
print("read", count)
print(os.remove(name), io.open(name))
local pipe = assert(io.popen("echo from a shell; exit 3", "r"))
print(pipe:read("a"), pipe:close())
print(os.execute("kill -9 $$"))

-- The clock goes forward, and the calendar is UTC's.
local begin = os.clock()
for _ = 1, 100000 do end
print(os.clock() >= begin, os.date("!%Y-%m-%d %H:%M:%S", 86400 * 365), os.getenv("NOTHING"))
