package apiserver

import (
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/events"
)

func TestItIsSaidOnceThatEventsAreRefused(t *testing.T) {
	asked := make(chan struct{}, 10)
	path := liar(t, func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","message":"events is forbidden","code":403}`)
	})
	var log strings.Builder
	cfg := config(t, path, newBoard())
	cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	recorder := events.New(events.Config{Dir: filepath.Join(t.TempDir(), "events"), Node: "n1"})
	cfg.Events = recorder
	c, err := Open(path, "test", quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	o := &outbox{Agent: New(cfg), client: c, objects: map[Key]*bucket{}, sent: map[string]bool{}}
	for _, reason := range []string{"BackOff", "Pulled", "Started"} {
		recorder.Event(corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "default", Name: "web", UID: "1"}, corev1.EventTypeNormal, reason, "m")
		if err := o.send(t.Context()); err != nil {
			t.Errorf("%s: %v", reason, err)
		}
	}
	if n := strings.Count(log.String(), "events is forbidden"); n != 1 || len(asked) != 3 {
		t.Errorf("said %d times, asked %d times:\n%s", n, len(asked), log.String())
	}
}
