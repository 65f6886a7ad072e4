// Command tiny stands for signalbox in tests: it has a dependency and the stamp of a release.
package main

import (
	"fmt"
	"os"

	"github.com/opencontainers/go-digest"
	"github.com/signalbox-dev/signalbox/server/release"
)

func main() {
	b := release.Current()
	fmt.Println(os.Args[1:], b.Version, b.Commit, b.Time, digest.SHA256)
}
