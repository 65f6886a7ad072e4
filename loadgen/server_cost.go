// What did the server use for a load?

package loadgen

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// ServerCost is the cost of a load to the instance whose admin endpoint was given.
type ServerCost struct {
	Cores             float64 `json:"cores"` // of CPU, on average
	CPUPerOperationUS float64 `json:"cpu_per_operation_us,omitempty"`
	CPUPerSessionUS   float64 `json:"cpu_per_session_us"` // a second; this and the next two of idle sessions only

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

// heapMetrics are the parts of a heap in use.
var heapMetrics = []string{"go_memory_classes_heap_objects_bytes", "go_memory_classes_heap_unused_bytes",
	"go_memory_classes_heap_stacks_bytes"}

// takeSample looks at the instance at an address for operators.
func takeSample(ctx context.Context, addr string) (sample, error) {
	s := sample{at: time.Now()}
	m, err := ReadMetrics(ctx, addr)
	if err != nil {
		return s, err
	}
	for _, name := range append([]string{"process_cpu_seconds_total", "process_resident_memory_bytes"}, heapMetrics...) {
		if _, ok := m[name]; !ok {
			return s, fmt.Errorf(
				"the metrics of %s do not tell CPU time and memory; is it the admin endpoint of an instance?", addr)
		}
		if slices.Contains(heapMetrics, name) {
			s.heap += uint64(m[name])
		}
	}
	s.cpu, s.resident = m["process_cpu_seconds_total"], uint64(m["process_resident_memory_bytes"])
	return s, nil
}

// newServerCost combines three samples: before the sessions started, at the begin of the
// measurement, and at its end.
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
