package logstore

import (
	_ "unsafe" // for go:linkname

	_ "github.com/lni/dragonboat/v4" // has the function below

	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
)

// openEngineStore opens the store that the engine uses when it is given none. The engine keeps it
// in an internal package, and offers no other way to it; all types of its signature are public. The
// pinned version of the engine has it; the linker says so when another one has not.
//
//go:linkname openEngineStore github.com/lni/dragonboat/v4/internal/logdb.NewDefaultLogDB
func openEngineStore(config.NodeHostConfig, config.LogDBCallback, []string, []string) (raftio.ILogDB, error)
