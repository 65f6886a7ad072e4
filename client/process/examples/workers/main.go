// Workers is an example of package assign: a work queue in partitions, which are spread over as
// many workers as there are. Here the queue is a folder with a file for each partition, and the
// work is to write the next number to it.
//
//	go run ./client/process/examples/workers --name a --queue /tmp/queue
//
// A worker of a partition reads the last number of its file and goes on from there. If two worked
// at once, a number would be there twice. A file does not reject a writer with a lower token. A
// real store should, against a worker that was stopped for longer than its session lives.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/process"
	"github.com/signalbox-dev/signalbox/client/process/assign"
)

func main() {
	name := flag.String("name", "", "of this worker")
	partitions := flag.Int("partitions", 9, "of the queue")
	queue := flag.String("queue", "", "folder of the queue")
	key := flag.String("key", "", "keeps the partitions while the worker is started again")
	back := flag.Duration("return", 30*time.Second, "for how long a key does that; the first worker's counts")
	timeout := flag.Duration("session-timeout", 10*time.Second, "how long the others wait for a worker that died")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o := process.Options{Data: []byte(*name), Key: *key, Return: *back}
	if err := run(ctx, *partitions, *queue, *name, *timeout, o); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, partitions int, queue, name string, timeout time.Duration, o process.Options) error {
	cfg, node, err := client.FromEnv() // SIGNALBOX_ENDPOINTS and others, as for the command line
	if err != nil {
		return err
	}
	s, err := client.OpenSession(ctx, cfg, node, client.Timeout(timeout), client.Description("worker "+name))
	if err != nil {
		return err
	}
	defer s.Client().Close()
	w, err := assign.Join(ctx, s, "workers", partitions, assign.Run(func(ctx context.Context, p assign.Partition) {
		fmt.Printf("%s begins with partition %d, token %d\n", name, p.Number, p.Token)
		if err := work(ctx, filepath.Join(queue, fmt.Sprint(p.Number)), name, p.Token); err != nil {
			log.Printf("%s cannot go on with partition %d: %v", name, p.Number, err)
		}
		fmt.Printf("%s ends with partition %d\n", name, p.Number)
	}), o)
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-w.Membership().Done():
		return w.Membership().Err() // it is over: somebody else has the partitions
	}
	ending, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return w.Leave(ending)
}

// work goes on from the last number in the file, until ctx ends.
func work(ctx context.Context, file, name string, token uint64) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	done, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	number := 0
	if lines := bytes.Fields(done); len(lines) >= 3 {
		if _, err := fmt.Sscan(string(lines[len(lines)-3]), &number); err != nil {
			return err
		}
	}
	beat := time.NewTicker(5 * time.Millisecond)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-beat.C:
			number++
			if _, err := fmt.Fprintf(f, "%d %s %d\n", number, name, token); err != nil {
				return err
			}
		}
	}
}
