package clitest

import (
	"io"
	"net/http"
	"strings"
	"time"

	"monopod/node/localclient"
)

// ShortLimits returns limits that are small, so that a test does not take long.
func ShortLimits() *localclient.Limits {
	return &localclient.Limits{Request: 300 * time.Millisecond, Answer: 1 << 16, Object: 1 << 14}
}

// Endlessly writes an answer that does not end: one JSON object that grows, or, of streams, one object after the other that is too long.
func Endlessly(begin string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, begin)
		chunk := []byte(strings.Repeat(`{"metadata":{"name":"x"}},`, 1000))
		for r.Context().Err() == nil {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}
}
