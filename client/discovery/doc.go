// Package discovery is for services that find each other: members register with health and drain,
// and callers keep a copy of the list that survives outages.
//
//	c, err := client.New(cfg) // the program starts while the cluster is away, too
//	err = discovery.Serve(ctx, c, "/billing", "api", discovery.Endpoint{Addr: "10.0.0.1:80"},
//		discovery.ReadyCheck(discovery.CheckTCP("127.0.0.1:80")))
//
// Package client has what is below: [client.Service] registers for the life of one session, and
// lists and watches the members with data of any form.
package discovery
