package client

import (
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/driver"
)

// ServeSession is a session of Supervise.
var ServeSession = serveSession

// NewImpatient is New of a client that gives up a refused token after a time other than 10 s.
func NewImpatient(cfg Config, patience time.Duration) (*Client, error) {
	c, err := configured(cfg, func(d *driver.Config) { d.RefusalPatience = patience })
	if err == nil {
		c.d.Begin()
	}
	return c, err
}
