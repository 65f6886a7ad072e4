// What do an instance's metrics show?

package loadgen

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxHTTPBody bounds the part of a page that is read, in bytes.
const maxHTTPBody = 64 << 20

// httpClient keeps no connection: it would add to the counted ones.
var httpClient = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// HTTPGet reads a page of a server; anything but 200 is an error.
func HTTPGet(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := httpClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", url, resp.Status)
	}
	return io.ReadAll(io.LimitReader(resp.Body, maxHTTPBody))
}

// ReadMetrics reads the metrics of an instance at its address for operators, host:port, and adds
// them up by name, over all labels.
func ReadMetrics(ctx context.Context, addr string) (map[string]float64, error) {
	page, err := HTTPGet(ctx, "http://"+addr+"/metrics")
	if err != nil {
		return nil, fmt.Errorf("ask the admin endpoint: %w", err)
	}
	return sumMetrics(page), nil
}

func sumMetrics(page []byte) map[string]float64 {
	sums := map[string]float64{}
	lines := bufio.NewScanner(bytes.NewReader(page))
	lines.Buffer(nil, len(page)+1)
	for lines.Scan() {
		line := lines.Text()
		i := strings.LastIndexByte(line, ' ')
		if i < 0 || strings.HasPrefix(line, "#") {
			continue
		}
		if v, err := strconv.ParseFloat(line[i+1:], 64); err == nil {
			name, _, _ := strings.Cut(line[:i], "{")
			sums[name] += v
		}
	}
	return sums
}

// collectGarbage makes the instance at an address for operators collect its garbage, so that its
// memory is memory in use.
func collectGarbage(ctx context.Context, addr string) error {
	_, err := HTTPGet(ctx, "http://"+addr+"/debug/pprof/heap?gc=1")
	if err != nil {
		err = fmt.Errorf("ask the admin endpoint: %w", err)
	}
	return err
}
