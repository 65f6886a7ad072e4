// Services is an example of package ratelimit: services that share the limit of an API, each in a
// process of its own. README.md of the package tells what to start, and what is seen.
//
//	go run ./client/ratelimit/examples/services --name billing --limit api
//
// A service calls as often as it may, and prints its rate whenever that changes.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/ratelimit"
)

func main() {
	name := flag.String("name", "", "of this service")
	limit := flag.String("limit", "api", "the rate limit, which must exist")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, *name, *limit); err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}

func serve(ctx context.Context, name, limit string) error {
	cfg, node, err := client.FromEnv() // SIGNALBOX_ENDPOINTS and others, as for the command line
	if err != nil {
		return err
	}
	s, err := client.OpenSession(ctx, cfg, node, client.Description(name))
	if err != nil {
		return err
	}
	defer s.Client().Close()
	l, err := ratelimit.JoinSession(ctx, s, limit)
	if err != nil {
		return err
	}
	defer giveBack(l)
	for {
		if err := l.Wait(ctx, 10); err != nil {
			return err
		}
		callAPI(name, l.Stats().Rate)
	}
}

// giveBack leaves the rate to the others at once. Those of a service that is killed get it when its
// lease ends.
func giveBack(l *ratelimit.Limiter) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := l.Close(ctx); err != nil {
		log.Print(err)
	}
}

var printed string

// callAPI stands for what costs ten units.
func callAPI(name string, rate float64) {
	if line := fmt.Sprintf("%s has %.0f units/s", name, rate); line != printed {
		fmt.Println(line)
		printed = line
	}
}
