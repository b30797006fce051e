-- wrk's answers, counted: what is wrong with one, and at the end all as words for the suite to read.
-- wrk (1) hands over the document's size behind `--`.
local threads = {}

function setup(thread)
    table.insert(threads, thread)
end

function init(arguments)
    size = tonumber(arguments[1])
    wrong = 0
end

function response(status, headers, body)
    if status ~= 200 or #body ~= size then
        wrong = wrong + 1
    end
end

function done(summary, latency, requests)
    local wrong = 0
    for _, thread in ipairs(threads) do
        wrong = wrong + thread:get("wrong")
    end
    local errors = summary.errors
    print(string.format(
        "counted: %d answers, %d wrong, errors: %d connect, %d read, %d write, %d status, %d timeout",
        summary.requests, wrong, errors.connect, errors.read, errors.write, errors.status,
        errors.timeout))
end
