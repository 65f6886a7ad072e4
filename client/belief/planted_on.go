//go:build planted

package belief

import "github.com/signalbox-dev/signalbox/client/internal/session"

// Planted are the switches of the faults in the SDK's session machine.
var Planted = session.Planted
