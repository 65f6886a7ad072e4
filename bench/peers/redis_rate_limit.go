package main

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/signalbox-dev/signalbox/bench"
)

// gcra decides about a call in Redis, as its users do: a key has the time at which the limit is unused
// again, and expires then. The arguments are the time that a unit takes and the time of a burst, in
// microseconds.
var gcra = rueidis.NewLuaScript(`
local t = redis.call("TIME")
local now = t[1] * 1000000 + t[2]
local full = math.max(tonumber(redis.call("GET", KEYS[1]) or now), now) + ARGV[1]
if full - now > tonumber(ARGV[2]) then return 0 end
redis.call("SET", KEYS[1], full, "PX", math.max(math.ceil((full - now) / 1000), 1))
return 1`)

// StartRateLimiter has Redis write nothing to a disk: a limit that is lost is full again, which its
// users live with.
func (r *redisServer) StartRateLimiter(ctx context.Context, dir string, rate, burst uint64) (bench.Decider, func(), error) {
	if r.client != bench.Rueidis {
		return nil, nil, bench.ErrUnsupported
	}
	p, addr, err := r.start(ctx, dir, "--appendonly", "no")
	if err != nil {
		return nil, nil, err
	}
	t := rueidisTarget{addr}
	c, err := t.client()
	if err != nil {
		p.Stop()
		return nil, nil, err
	}
	decide := func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		unit := strconv.FormatFloat(1e6/float64(rate), 'f', -1, 64)
		whole := strconv.FormatFloat(float64(burst)*1e6/float64(rate), 'f', -1, 64)
		n, err := gcra.Exec(ctx, c, []string{"limit/api"}, []string{unit, whole}).AsInt64()
		return n == 1, err
	}
	return decide, func() { c.Close(); p.Stop() }, nil
}
