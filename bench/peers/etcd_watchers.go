package main

import (
	"context"
	"encoding/json"
	"io"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/signalbox-dev/signalbox/bench"
)

// etcdWatchersVerb runs watchers; only the program itself uses it.
const etcdWatchersVerb = "etcd-watchers"

// etcdWatchers are watchers of the service in a process of their own, each with a client.
type etcdWatchers struct {
	Endpoints []string
	Count     int
}

// etcdReads is how many of them read the list at once: etcd makes each answer again and whole, and
// thousands at once do not fit into its memory.
const etcdReads = 200

func etcdWatchersCommand(ctx context.Context, config string, in io.Reader, out io.Writer) error {
	var g etcdWatchers
	if err := json.Unmarshal([]byte(config), &g); err != nil {
		return err
	}
	reads := make(chan struct{}, etcdReads)
	return bench.RunWatchers(ctx, g.Count, in, out, func(ctx context.Context, w *bench.Watcher) error {
		c, err := clientv3.New(clientv3.Config{Endpoints: g.Endpoints, DialTimeout: etcdTimeout, Logger: zap.NewNop()})
		if err != nil {
			return err
		}
		defer c.Close()
		reads <- struct{}{}
		list, err := c.Get(ctx, servicePrefix, clientv3.WithPrefix())
		<-reads
		if err != nil {
			return err
		}
		w.Begun()
		for r := range c.Watch(ctx, servicePrefix, clientv3.WithPrefix(), clientv3.WithRev(list.Header.Revision+1)) {
			if err := r.Err(); err != nil {
				return err
			}
			for _, ev := range r.Events {
				if ev.Type == clientv3.EventTypePut {
					w.Changed(ev.Kv.Value)
				}
			}
		}
		return ctx.Err()
	})
}
