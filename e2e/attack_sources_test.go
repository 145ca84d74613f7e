//go:build e2e

package e2e

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"monopod/internal/model"
)

// zeros is an endless stream.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// hostileAnswers are answers of servers, with the expected messages.
func hostileAnswers() []struct {
	name, want string
	state      model.InputState
	answer     http.HandlerFunc
} {
	return []struct {
		name, want string
		state      model.InputState
		answer     http.HandlerFunc
	}{
		{"a body without end", "larger than 10 MiB", model.InputRefused, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, zeros{}) }},
		{"a gzip bomb", "larger than 10 MiB", model.InputRefused, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			_, _ = io.Copy(z, zeros{})
		}},
		{"headers without end", "", model.InputUnreachable, func(w http.ResponseWriter, _ *http.Request) {
			for i := range 64 {
				w.Header().Set(fmt.Sprintf("X-%d", i), strings.Repeat("x", 1<<20))
			}
		}},
		{"redirects in a circle", "", model.InputUnreachable, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path, http.StatusFound) }},
		{"a web page", "text/html", model.InputRefused, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<!DOCTYPE html><html></html>") }},
		{"an answer that stands still", "", model.InputUnreachable, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "apiVersion: v1\n")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}},
		{"a failure with a long story", "500", model.InputUnreachable, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.Copy(w, zeros{})
		}},
	}
}

// reported waits until a source has a state, for a reason.
func (a *attacked) reported(source string, state model.InputState, want string) {
	a.t.Helper()
	a.eventually(fmt.Sprintf("source %s is %s, with %q", source, state, want), func() error {
		out, err := a.run("get", "sources", "-o", "json")
		if err == nil && (!strings.Contains(out, fmt.Sprintf("%q", state)) || !strings.Contains(out, want)) {
			err = fmt.Errorf("get sources says %.2000s", out)
		}
		return err
	})
}

// TestAttackSources: whatever a server sends needs at most the memory of a maximum answer, and running pods are not affected.
func TestAttackSources(t *testing.T) {
	site := newSite(t)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	site.authority(ca)
	a := newAttacked(t, fmt.Sprintf("sources: [{name: fleet, url: %q, caFile: %s, period: 1s, timeout: 2s}]", "https://"+site.address+"/pods.yaml", ca))
	for _, h := range hostileAnswers() {
		a.reported("fleet", model.InputAccepted, "")
		a.survives(h.name, func() {
			site.answers(h.answer)
			a.reported("fleet", h.state, h.want)
		})
		site.says("# nothing\n")
	}
	a.reported("fleet", model.InputAccepted, "")
}
