// Package server is an instance of signalbox. It assembles the packages below it: configuration,
// start and stop. DESIGN.md has the walk of a request through them.
//
//	s, err := server.Start(ctx, server.Config{DataDir: "signalbox-data"})
//	if err != nil { ... }
//	<-s.Done()          // a defect ended it: see s.Err
//	s.Shutdown(ctx)     // or the caller does
//
// A server started on an empty folder makes a cluster of one instance. Everything it answers with
// success is on disk before the answer leaves; killing it at any moment is safe.
package server
