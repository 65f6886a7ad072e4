package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"
)

// outerCommand is the command line that runs this one under leases, on the same node of the same
// cluster.
type outerCommand struct {
	session uint64 // 0: there is none
	leases  []outerLease
}

type outerLease struct {
	Name  string `json:"name"`
	Count string `json:"count"` // a number, or max
}

// outerCommandOf reads the variables that a command gets. They are about something else if this
// command line goes elsewhere.
func outerCommandOf(values map[string]string) (o outerCommand) {
	for setting, variable := range map[string]string{
		"node": "SIGNALBOX_NODE", "endpoints": "SIGNALBOX_ENDPOINTS", "cluster": "SIGNALBOX_CLUSTER",
	} {
		if values[setting] != os.Getenv(variable) {
			return outerCommand{}
		}
	}
	o.session, _ = strconv.ParseUint(os.Getenv("SIGNALBOX_SESSION"), 10, 64)
	if o.session != 0 {
		_ = json.Unmarshal([]byte(os.Getenv("SIGNALBOX_LEASES")), &o.leases)
	}
	return o
}

// refuseNested refuses to wait for a lease of the outer command, which releases it when this
// command has ended. A lease of a part excludes another one only behind other waiters, which the
// graph of waits shows. A request that does not wait gets its answer anyway.
func (o *outerCommand) refuseNested(wait time.Duration, shared bool, names ...string) error {
	if wait == 0 {
		return nil
	}
	for _, l := range o.leases {
		for _, name := range names {
			if l.Name == name && (!shared || l.Count == "max") {
				return &codeError{code: exitNotAcquired, err: fmt.Errorf("%q is held by the command that runs this one, "+
					"by session %d, and is given back only when this one has ended; it is in SIGNALBOX_LEASES", name, o.session)}
			}
		}
	}
	return nil
}
