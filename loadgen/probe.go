package loadgen

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// ServerCost is what a load cost the instance whose admin endpoint was given.
type ServerCost struct {
	Cores             float64 `json:"cores"` // of CPU, on average
	CPUPerOperationUS float64 `json:"cpu_per_operation_us,omitempty"`
	CPUPerSessionUS   float64 `json:"cpu_per_session_us"` // a second

	Memory           uint64  `json:"memory_bytes"`             // resident, at the end
	MemoryBefore     uint64  `json:"memory_before_bytes"`      // before the sessions of the load started
	MemoryPerSession float64 `json:"memory_per_session_bytes"` // resident memory that came with the sessions, after collecting garbage
	HeapPerSession   float64 `json:"heap_per_session_bytes"`   // of that, the collector's heap and the goroutines' stacks
}

// sample is one look at an instance.
type sample struct {
	at       time.Time
	cpu      float64 // seconds, since its start
	resident uint64  // bytes
	heap     uint64  // bytes in use, stacks included
}

// probe looks at an instance's admin endpoint.
type probe struct {
	addr string
	http http.Client
}

func newProbe(addr string) *probe {
	return &probe{addr: addr, http: http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}}
}

func (p *probe) get(ctx context.Context, path string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.addr+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := p.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask the admin endpoint: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, fmt.Errorf("ask the admin endpoint: %s answers %s", p.addr, resp.Status)
	}
	return resp.Body, nil
}

// collect makes the instance collect its garbage, so that memory means what is in use.
func (p *probe) collect(ctx context.Context) error {
	body, err := p.get(ctx, "/debug/pprof/heap?gc=1")
	if err != nil {
		return err
	}
	defer body.Close()
	_, err = io.Copy(io.Discard, body)
	return err
}

func (p *probe) sample(ctx context.Context) (sample, error) {
	s := sample{at: time.Now()}
	body, err := p.get(ctx, "/metrics")
	if err != nil {
		return s, err
	}
	defer body.Close()
	found := 0
	lines := bufio.NewScanner(io.LimitReader(body, 64<<20))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, text, ok := strings.Cut(lines.Text(), " ")
		if !ok {
			continue
		}
		x, err := strconv.ParseFloat(text, 64)
		if err != nil {
			continue
		}
		switch name {
		case "process_cpu_seconds_total":
			s.cpu = x
			found++
		case "process_resident_memory_bytes":
			s.resident = uint64(x)
			found++
		case "go_memstats_heap_inuse_bytes", "go_memstats_stack_inuse_bytes":
			s.heap += uint64(x)
			found++
		}
	}
	if err := lines.Err(); err != nil {
		return s, fmt.Errorf("read the metrics: %w", err)
	}
	if found < 4 {
		return s, fmt.Errorf("the metrics of %s do not tell CPU time and memory; is it the admin endpoint of an instance?", p.addr)
	}
	return s, nil
}

// newServerCost puts three looks together: before the sessions started, when what is measured
// began, and at its end.
func newServerCost(before, begin, end sample, sessions int, operations uint64) *ServerCost {
	seconds := end.at.Sub(begin.at).Seconds()
	c := &ServerCost{Memory: end.resident, MemoryBefore: before.resident}
	if seconds > 0 {
		c.Cores = (end.cpu - begin.cpu) / seconds
	}
	if operations > 0 {
		c.CPUPerOperationUS = (end.cpu - begin.cpu) * 1e6 / float64(operations)
	}
	if n := float64(sessions); n > 0 {
		c.CPUPerSessionUS = c.Cores * 1e6 / n
		c.MemoryPerSession = (float64(begin.resident) - float64(before.resident)) / n
		c.HeapPerSession = (float64(begin.heap) - float64(before.heap)) / n
	}
	return c
}
