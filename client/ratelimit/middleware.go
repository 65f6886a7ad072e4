package ratelimit

import (
	"math"
	"net/http"
	"strconv"
	"time"
)

// Middleware lets requests through as far as the limiter allows. Others are answered with 429 Too
// Many Requests and the header Retry-After, or with 413 if they cost more than can ever be
// admitted. cost is how many units a request takes; nil: one each.
func Middleware(l *Limiter, cost func(*http.Request) uint64) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n := uint64(1)
			if cost != nil {
				n = cost(r)
			}
			if l.Allow(n) {
				next.ServeHTTP(w, r)
				return
			}
			wait, err := l.RetryAfter(n)
			if err != nil {
				http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
				return
			}
			SetRetryAfter(w.Header(), wait)
			http.Error(w, "the rate limit of "+l.Path()+" is reached; retry later", http.StatusTooManyRequests)
		})
	}
}

// SetRetryAfter sets the header Retry-After, in whole seconds, at least one.
func SetRetryAfter(h http.Header, d time.Duration) {
	h.Set("Retry-After", strconv.Itoa(int(max(math.Ceil(d.Seconds()), 1))))
}
