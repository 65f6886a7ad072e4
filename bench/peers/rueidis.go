// How does Redis lock and read through rueidis?

package main

import (
	"context"
	"math/rand/v2"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/signalbox-dev/signalbox/loadgen"
)

// rueidisTarget speaks to Redis through rueidis, which gathers the requests of all callers into
// pipelines over four connections: the fastest that Redis is driven from Go. Its cache is off,
// since a read from the client's own memory asks no server.
type rueidisTarget struct{ addr string }

func (t *rueidisTarget) Name() string { return "redis at " + t.addr + " through rueidis" }

func (t *rueidisTarget) Code(err error) string { return codeOf(err) }

func (t *rueidisTarget) client() (rueidis.Client, error) {
	return rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{t.addr}, ForceSingleClient: true, DisableCache: true, PipelineMultiplex: 2, AlwaysPipelining: true,
	})
}

func (t *rueidisTarget) Open(context.Context) (loadgen.Conn, error) {
	c, err := t.client()
	if err != nil {
		return nil, err
	}
	return rueidisConn{c}, nil
}

type rueidisConn struct{ c rueidis.Client }

func (c rueidisConn) Close() error {
	c.c.Close()
	return nil
}

func (c rueidisConn) Session(context.Context) (loadgen.Session, error) {
	return &rueidisSession{c.c, strconv.FormatUint(rand.Uint64(), 36)}, nil
}

type rueidisSession struct {
	c     rueidis.Client
	token string
}

func (s *rueidisSession) Close(context.Context) error { return nil }

var rueidisUnlock = rueidis.NewLuaScript(unlock)

// Acquirer locks as Redis's documentation says.
func (s *rueidisSession) Acquirer(loadgen.AcquireOptions) loadgen.Acquirer { return s }

func (s *rueidisSession) Acquire(ctx context.Context, name string) (loadgen.Lease, error) {
	err := s.c.Do(ctx, s.c.B().Set().Key(name).Value(s.token).Nx().PxMilliseconds(lockExpiry).Build()).Error()
	if rueidis.IsRedisNil(err) {
		return nil, errLockTaken
	}
	if err != nil {
		return nil, err
	}
	return loadgen.LeaseFunc(func(ctx context.Context) error {
		return rueidisUnlock.Exec(ctx, s.c, []string{name}, []string{s.token}).Error()
	}), nil
}

func (s *rueidisSession) Create(ctx context.Context, name string, data []byte) error {
	return s.Write(ctx, name, data)
}

func (s *rueidisSession) Write(ctx context.Context, name string, data []byte) error {
	return s.c.Do(ctx, s.c.B().Set().Key(name).Value(rueidis.BinaryString(data)).Build()).Error()
}

func (s *rueidisSession) Delete(ctx context.Context, name string) error {
	return s.c.Do(ctx, s.c.B().Del().Key(name).Build()).Error()
}

func (s *rueidisSession) Reader(bool) loadgen.Reader { return s }

func (s *rueidisSession) Read(ctx context.Context, name string) error {
	return s.c.Do(ctx, s.c.B().Get().Key(name).Build()).Error()
}
