package gateway

import (
	"cmp"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/signalbox-dev/signalbox/protocol"
)

// databasePrefix is the database as the prefix of paths: /local, or nothing for the root.
func databasePrefix(database string) (string, error) {
	if database == "" {
		return "", fmt.Errorf("the database is empty; name the prefix of your clients' paths, like /local, or / for none")
	}
	p := normalize(database)
	if p == "" {
		return "", nil
	}
	if err := protocol.ValidatePath(p); err != nil {
		return "", fmt.Errorf("the database %q is no path: %w", database, err)
	}
	return p, nil
}

// normalize gives a path one slash in front and none at the end: clients write a database in all of
// these forms. The root is empty.
func normalize(path string) string {
	p := strings.Trim(path, "/")
	if p == "" {
		return ""
	}
	return "/" + p
}

// nodePath is the cluster's path of a client's: the database is taken off. The root of the database
// is empty.
func (g *Gateway) nodePath(path string) (string, error) {
	if !strings.HasPrefix(path, "/") {
		return "", protocol.Errorf(protocol.StatusBadRequest,
			"path %q is not absolute; begin it with the database, %s", path, g.database())
	}
	p := strings.TrimRight(path, "/")
	rest, ok := strings.CutPrefix(p, g.prefix)
	if !ok || rest != "" && rest[0] != '/' {
		return "", protocol.Errorf(protocol.StatusBadRequest,
			"path %q is not in the database %s that this gateway serves; begin it with that", path, g.database())
	}
	return rest, nil
}

// clientPath is the client's form of a path of the cluster.
func (g *Gateway) clientPath(path string) string { return g.prefix + path }

// database is the configured database, for people.
func (g *Gateway) database() string { return cmp.Or(g.prefix, "/") }

// lastSegment is the name of a path's last part.
func lastSegment(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// endpoint is an address that clients dial.
type endpoint struct {
	host string
	port uint32
}

func endpointOf(address string) (e endpoint, err error) {
	host, port, err := net.SplitHostPort(address)
	if err == nil {
		var n uint64
		n, err = strconv.ParseUint(port, 10, 16)
		e = endpoint{host: host, port: uint32(n)}
	}
	if err != nil || e.host == "" || e.port == 0 {
		return e, fmt.Errorf("the advertised address %q is not host:port; write it as clients dial it, like ydb.example.com:2136", address)
	}
	return e, nil
}
