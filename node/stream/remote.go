package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"monopod/internal/streams"
)

// What a status says of a command that has ended with another exit code than 0.
const (
	reasonExitCode = "NonZeroExitCode"
	causeExitCode  = "ExitCode"
)

// wanted are the streams that a client announces.
type wanted struct {
	stdin, stdout, stderr, tty bool
}

// wantedBy reads the kubelet's names of the streams.
func wantedBy(r *http.Request) (wanted, error) {
	set := func(name string) bool {
		on, _ := strconv.ParseBool(r.FormValue(name))
		return on
	}
	o := wanted{stdin: set("input"), stdout: set("output"), stderr: set("error"), tty: set("tty")}
	o.stderr = o.stderr && !o.tty // a terminal has one output
	if !o.stdin && !o.stdout && !o.stderr {
		return o, faultf(http.StatusBadRequest, "you must specify at least 1 of stdin, stdout, stderr")
	}
	return o, nil
}

// remote is a client with its streams.
type remote struct {
	// ctx ends when the client is gone.
	ctx     context.Context
	streams streams.Streams
	// finish sends the result, and closes the connection.
	finish func(metav1.Status)
}

// connect upgrades the connection. After an error it has answered.
func (h *Handler) connect(w http.ResponseWriter, r *http.Request, o wanted) (*remote, error) {
	if wsstream.IsWebSocketRequest(r) {
		return h.connectWebSocket(w, r, o)
	}
	return h.connectSPDY(w, r, o)
}

func (h *Handler) exec(w http.ResponseWriter, r *http.Request) {
	t, err := h.target(r)
	if err != nil {
		h.fail(w, err)
		return
	}
	command := r.URL.Query()["command"]
	if len(command) == 0 {
		h.fail(w, faultf(http.StatusBadRequest, "no command is given"))
		return
	}
	h.serve(w, r, t, "exec", func(ctx context.Context, s streams.Streams) metav1.Status {
		code, err := h.cfg.Runtime.Stream(ctx, t.key, t.id, command, s)
		switch {
		case err != nil:
			return failure("error executing command in container: %v", err)
		case code != 0:
			return exitStatus(code)
		}
		return metav1.Status{Status: metav1.StatusSuccess}
	})
}

func (h *Handler) attach(w http.ResponseWriter, r *http.Request) {
	t, err := h.target(r)
	if err != nil {
		h.fail(w, err)
		return
	}
	h.serve(w, r, t, "attach", func(ctx context.Context, s streams.Streams) metav1.Status {
		s.TTY = t.container.TTY // which cannot be another one any more
		if s.Resize != nil && !s.TTY {
			go func() {
				for range s.Resize { // what nobody takes would stop what comes behind it
				}
			}()
		}
		if err := h.cfg.Runtime.Attach(ctx, t.key, t.id, s); err != nil {
			return failure("error attaching to container: %v", err)
		}
		return metav1.Status{Status: metav1.StatusSuccess}
	})
}

// serve connects a client and does what it came for.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, t target, what string, do func(context.Context, streams.Streams) metav1.Status) {
	o, err := wantedBy(r)
	if err != nil {
		h.fail(w, err)
		return
	}
	log := h.cfg.Log.With("pod", t.key.String(), "container", t.container.Name)
	c, err := h.connect(w, r, o)
	if err != nil {
		log.Debug(what+": no connection", "err", err)
		return
	}
	status := do(c.ctx, c.streams)
	log.Debug(what+" has ended", "status", status.Status, "message", status.Message)
	c.finish(status)
}

func failure(format string, args ...any) metav1.Status {
	return metav1.Status{
		Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError, Code: http.StatusInternalServerError,
		Message: "Internal error occurred: " + fmt.Sprintf(format, args...),
	}
}

func exitStatus(code int) metav1.Status {
	return metav1.Status{
		Status: metav1.StatusFailure, Reason: reasonExitCode,
		Message: fmt.Sprintf("command terminated with non-zero exit code: exit status %d", code),
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: causeExitCode, Message: strconv.Itoa(code)}}},
	}
}

// writeStatus sends a status the way of a protocol: before v4 an error was a bare text.
func writeStatus(w io.Writer, protocol string, s metav1.Status) error {
	if !slices.Contains([]string{protocolV4, protocolV5, protocolV4Base64}, protocol) {
		if s.Status == metav1.StatusSuccess {
			return nil
		}
		_, err := io.WriteString(w, s.Message)
		return err
	}
	b, err := json.Marshal(s)
	if err == nil {
		_, err = w.Write(b)
	}
	return err
}

// sizes decodes what a client sends on the stream for sizes of its terminal, until that or ctx ends.
func sizes(ctx context.Context, from io.Reader) <-chan streams.Size {
	to := make(chan streams.Size)
	go func() {
		defer close(to)
		for decoder := json.NewDecoder(from); ; {
			var s streams.Size
			if decoder.Decode(&s) != nil {
				return
			}
			select {
			case to <- s:
			case <-ctx.Done():
				return
			}
		}
	}()
	return to
}

// Why connections end.
var (
	errHungUp = errors.New("the client has gone")
	errIdle   = errors.New("no data was transferred for too long")
)
