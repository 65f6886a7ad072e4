// How are the bare engine and the bare event loop started?

package limits

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
	"time"
)

// Command runs a server for the benchmark, or a measurement, in a process of its own. A server ends
// with ctx.
func Command(ctx context.Context, args []string, stdout io.Writer) error {
	if len(args) == 0 {
		return fmt.Errorf("give raft, echo or version")
	}
	f := flag.NewFlagSet("limit", flag.ContinueOnError)
	dir := f.String("dir", "", "empty folder on a real disk")
	listen := f.String("listen", "", "address")
	length := f.Duration("for", time.Second, "of each measurement")
	if err := f.Parse(args[1:]); err != nil {
		return err
	}
	switch args[0] {
	case "raft":
		r, err := MeasureRaft(ctx, *dir, *listen, *length)
		if err != nil {
			return err
		}
		return json.NewEncoder(stdout).Encode(r)
	case "echo":
		return ServeEcho(ctx, *listen)
	case "version":
		info, ok := debug.ReadBuildInfo()
		if !ok || f.NArg() != 1 {
			return fmt.Errorf("give a module that this program was built with")
		}
		for _, m := range info.Deps {
			if strings.Contains(m.Path, "/"+f.Arg(0)+"/") {
				_, err := fmt.Fprint(stdout, m.Path, " ", m.Version)
				return err
			}
		}
		return fmt.Errorf("this program was not built with %s", f.Arg(0))
	}
	return fmt.Errorf("give raft, echo or version")
}
