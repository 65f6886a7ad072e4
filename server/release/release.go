// Package release tells which release a binary belongs to, and which commit it was built from.
package release

import (
	"runtime/debug"
	"sync"
)

// TreeVersion is the version of this source tree. A release is made from it, and is stamped with it
// less "-dev".
const TreeVersion = "0.3.0-dev"

// A release sets these with -ldflags -X.
var (
	version    string
	commit     string
	commitTime string
)

// Build tells where a binary comes from.
type Build struct {
	Version string
	Commit  string // empty if unknown
	Time    string // when the commit was made, as RFC 3339 has it; empty if unknown
}

// Current returns the build of the running binary. Without a stamp the version is the tree's, and
// the commit is what Go recorded.
var Current = sync.OnceValue(func() Build {
	if version != "" {
		return Build{Version: version, Commit: commit, Time: commitTime}
	}
	b := Build{Version: TreeVersion}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Time = s.Value
		}
	}
	return b
})
