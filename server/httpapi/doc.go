// Package httpapi serves locks by HTTP: for programs without an SDK, scripts and CI jobs.
//
// It is a client of the cluster, with the token that each caller shows: rights, quotas and the
// audit log are the server's. A caller names its session in a header, and gets native locks with
// fencing tokens, and in each answer how long it may rely on them.
//
//	api, err := httpapi.New(httpapi.Config{Client: client.Config{Endpoints: []string{"127.0.0.1:7070"}}})
//	srv := httpapi.Server(api, log)
//	err = srv.Serve(httpapi.LimitListener(l))
//
// What a caller may believe: it stops waited_ms + expires_in_ms after it has sent a request. Both
// are in the answer. The gateway says no more than client.Session.Remaining at that moment, and
// keeps a session a second longer than it said. If it dies, the native session lasts longer than
// any belief.
package httpapi
