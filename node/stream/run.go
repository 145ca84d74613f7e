package stream

import (
	"bytes"
	"net/http"
	"strings"
	"sync"

	"monopod/internal/streams"
)

// runRoom is how much output /run keeps back until it is known how the command ended.
const runRoom = 64 << 10

// run runs a command and answers with its output. The status of the answer is that of the command unless it says much.
func (h *Handler) run(w http.ResponseWriter, r *http.Request) {
	t, err := h.target(r)
	if err != nil {
		h.fail(w, err)
		return
	}
	command := strings.Fields(r.FormValue("cmd"))
	if len(command) == 0 {
		h.fail(w, faultf(http.StatusBadRequest, "no cmd is given"))
		return
	}
	out := &lateWriter{w: w}
	code, err := h.cfg.Runtime.Stream(r.Context(), t.key, t.id, command, streams.Streams{Stdout: out, Stderr: out})
	switch {
	case err != nil:
		out.fail(err.Error())
	case code != 0:
		out.fail(exitStatus(code).Message)
	default:
		_ = out.flush()
	}
}

// lateWriter keeps the beginning of an answer back.
type lateWriter struct {
	w http.ResponseWriter

	mu   sync.Mutex // guards all below: there are two outputs
	kept bytes.Buffer
	on   bool
}

func (l *lateWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.on && l.kept.Len()+len(b) <= runRoom {
		return l.kept.Write(b)
	}
	if err := l.flushLocked(); err != nil {
		return 0, err
	}
	return l.w.Write(b)
}

func (l *lateWriter) flush() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.flushLocked()
}

func (l *lateWriter) flushLocked() error {
	if !l.on {
		l.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	}
	l.on = true
	_, err := l.kept.WriteTo(l.w)
	return err
}

// fail adds what went wrong behind the output.
func (l *lateWriter) fail(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.on {
		l.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		l.w.WriteHeader(http.StatusInternalServerError)
		l.on = true
	}
	_, _ = l.kept.WriteString(text + "\n")
	_, _ = l.kept.WriteTo(l.w)
}
