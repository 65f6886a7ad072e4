package bench

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/bench/limits"
	"github.com/signalbox-dev/signalbox/server"
)

var update = flag.Bool("update", false, "rewrite the golden files of testdata")

// TestMain makes the test's own binary stand for the binaries that are measured: with the name of a
// verb it is a server.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "version":
			fmt.Println("version under test")
			os.Exit(0)
		case "serve":
			os.Exit(serve(os.Args[2:]))
		case "limit":
			os.Exit(limit(os.Args[2:]))
		case "fail":
			fmt.Println("no such thing")
			os.Exit(3)
		}
	}
	os.Exit(m.Run())
}

// serve is signalbox serve, with elections ten times as fast.
func serve(args []string) int {
	f := flag.NewFlagSet("serve", flag.ExitOnError)
	c := server.Config{RTT: 10 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
	f.StringVar(&c.DataDir, "data", "", "")
	f.StringVar(&c.Listen, "listen", "", "")
	f.StringVar(&c.Raft, "raft", "", "")
	f.StringVar(&c.Admin, "admin", "", "")
	f.String("log-level", "", "")
	f.StringVar(&c.Name, "instance", "", "")
	f.IntVar(&c.ReplicationFactor, "replication-factor", 1, "")
	peers, token := f.String("peer", "", ""), f.String("join-token-file", "", "")
	_ = f.Parse(args)
	if *peers != "" {
		c.Peers = strings.Split(*peers, ",")
	}
	if *token != "" {
		secret, err := os.ReadFile(*token)
		if err != nil {
			fmt.Println(err)
			return 1
		}
		c.JoinToken = strings.TrimSpace(string(secret))
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	s, err := server.Start(ctx, c)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	<-ctx.Done()
	_ = s.Shutdown(context.Background())
	return 0
}

// limit is the verb of bench/cmd.
func limit(args []string) int {
	if args[0] == "version" {
		fmt.Print("under test")
		return 0
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := limits.Command(ctx, args, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// self is the test's binary.
func self(t *testing.T) string {
	t.Helper()
	name, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// golden compares got with a file of testdata, or writes it with -update.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; run with -update and look at the difference. It is now:\n%s", file, got)
	}
}
