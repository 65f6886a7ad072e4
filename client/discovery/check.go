package discovery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"time"
)

// Check finds out whether the program can serve; an error says why it cannot. It should end with
// ctx, which has the check's timeout. A panic is a failure too. The end of the registration waits for
// a check that runs, for as long as its timeout.
type Check func(ctx context.Context) error

// Times of checks.
const (
	minCheckInterval     = time.Second
	DefaultCheckInterval = 5 * time.Second
	maxCheckInterval     = 5 * time.Minute
	DefaultCheckTimeout  = time.Second
)

// CheckTCP succeeds if a connection to host:port can be made.
func CheckTCP(addr string) Check {
	return func(ctx context.Context) error {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}

// CheckHTTP succeeds if GET is answered with a status of 200 to 299. It follows no redirect.
func CheckHTTP(url string) Check {
	c := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := c.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)); err != nil {
			return err
		}
		if resp.StatusCode < 200 || resp.StatusCode > 299 {
			return fmt.Errorf("GET %s: %s", url, resp.Status)
		}
		return nil
	}
}

// checker runs a check again and again, never twice at once.
type checker struct {
	check    Check
	interval time.Duration
	timeout  time.Duration
	running  chan error // of a run that has not returned in its time; nil: there is none
}

var (
	errStillRunning = errors.New("the check has not returned since its last timeout")
	errNoResult     = errors.New("the check ended its goroutine without a result")
)

// run is one check. One that ignores its context fails as long as it runs.
func (c *checker) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("the check took longer than %s", c.timeout))
	defer cancel()
	if c.running != nil {
		select {
		case <-c.running:
			c.running = nil
		case <-ctx.Done():
		}
		return errStillRunning
	}
	running := make(chan error, 1)
	go func() {
		err := errNoResult
		defer func() {
			if r := recover(); r != nil {
				err = fmt.Errorf("the check panics: %v", r)
			}
			running <- err
		}()
		err = c.check(ctx)
	}()
	select {
	case err := <-running:
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return err
	case <-ctx.Done():
		c.running = running
		return context.Cause(ctx)
	}
}

// repeat runs the check until ctx ends. It begins after a random part of the interval, so that the
// checks of a fleet that starts at once do not march in step; the jitter keeps them apart.
func (c *checker) repeat(ctx context.Context, result func(error)) {
	t := time.NewTimer(rand.N(c.interval))
	defer t.Stop()
	defer c.wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		began := time.Now()
		err := c.run(ctx)
		if ctx.Err() != nil {
			return
		}
		result(err)
		next := time.Duration((0.9 + 0.2*rand.Float64()) * float64(c.interval))
		t.Reset(next - time.Since(began))
	}
}

// wait waits for a run that has not returned in its time, for as long again.
func (c *checker) wait() {
	if c.running == nil {
		return
	}
	t := time.NewTimer(c.timeout)
	defer t.Stop()
	select {
	case <-c.running:
		c.running = nil
	case <-t.C:
	}
}
