// Package pagesize has lists end their pages after two entries, so that each loop over the pages of
// a list runs several times in tests that have a few of what is listed. Tests of any package use
// it; no program does.
package pagesize

import (
	"github.com/signalbox-dev/signalbox/server/governor"
	"github.com/signalbox-dev/signalbox/shard"
)

// Two is called by TestMain, before any server of the process starts.
func Two() { shard.PageEntries, governor.MaxPage = 2, 2 }
