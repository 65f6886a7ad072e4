package httpapi

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"strings"
)

// fuzzRequest is a request as it comes from a connection; ok is false if net/http refuses it.
func fuzzRequest(target, name string) (w *httptest.ResponseRecorder, r *http.Request, ok bool) {
	text := "POST " + target + " HTTP/1.1\r\nHost: localhost\r\nSignalbox-Session: " + name + "\r\n\r\n"
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
	if err != nil || r.URL.Path == "/v1/ready" {
		return nil, nil, false
	}
	r.RemoteAddr = "127.0.0.1:1"
	return httptest.NewRecorder(), r, true
}
