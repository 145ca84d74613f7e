package apiserver

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/node/apiserver/client"
	"monopod/node/events"
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
	c, err := client.Open(path, "test", quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	o := newOutbox(New(cfg), c)
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

func TestAnEventIsCountedOnceHoweverOftenItIsSent(t *testing.T) {
	var away atomic.Bool
	var mu sync.Mutex
	calls := map[string]int{}
	path := liar(t, func(w http.ResponseWriter, r *http.Request) {
		if away.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		mu.Lock()
		calls[r.Method+" "+r.URL.Path]++
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"kind":"Event","apiVersion":"v1"}`)
	})
	cfg := config(t, path, newBoard())
	recorder := events.New(events.Config{Dir: filepath.Join(t.TempDir(), "events"), Node: "n1"})
	cfg.Events, cfg.EventQPS = recorder, 0
	c, err := client.Open(path, "test", quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	o := newOutbox(New(cfg), c)
	about := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "default", Name: "web", UID: "1"}
	recorder.Event(about, corev1.EventTypeWarning, "Unhealthy", "answer 0")
	away.Store(true)
	for range 2 * objectBurst {
		if err := o.send(t.Context()); err == nil {
			t.Fatal("a server that is not there takes events")
		}
	}
	away.Store(false)
	for i := range objectBurst {
		if i > 0 {
			recorder.Event(about, corev1.EventTypeWarning, "Unhealthy", fmt.Sprint("answer ", i))
		}
		if err := o.send(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	const manySimilar = 10 // as in client-go
	posts, patches := 0, 0
	for what, n := range calls {
		if strings.HasPrefix(what, http.MethodPost) {
			posts += n
		} else if patches += n; n != objectBurst-manySimilar {
			t.Errorf("%s: %d times", what, n)
		}
	}
	if posts != 10 || patches != objectBurst-manySimilar {
		t.Errorf("%d are made and %d raised: %v", posts, patches, calls)
	}
}
