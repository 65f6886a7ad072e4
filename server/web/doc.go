// Package web is what the HTTP faces share: the console's pages, and locks by HTTP.
//
// It decides under which names a listener is reached, how many connections it has, and how long a
// slow client may take.
//
//	srv := web.Server(handler, web.Timeouts{Header: 5 * time.Second, ...}, log)
//	err := srv.Serve(web.LimitListener(l, 128, "too many connections; close some first"))
//
// A handler calls KeepConnection while it serves a request that its client should not lose.
package web
