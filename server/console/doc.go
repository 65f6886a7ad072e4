// Package console serves web pages that show what a cluster holds: who owns what, who waits, since
// when and why.
//
// A console is a client like any other. It reads and changes the cluster through the Go SDK, with
// the credentials of the person who looks at it, so the server checks rights and quotas and writes
// audit lines as for every client.
//
//	c, err := console.New(console.Config{Client: client.Config{Endpoints: endpoints}})
//	defer c.Close()
//	srv := console.Server(c, log)
//	err = srv.Serve(console.LimitListener(l))
//
// Every page is complete without JavaScript. With it a page shows changes as they happen.
package console
