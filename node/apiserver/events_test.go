package apiserver

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	o := &outbox{Agent: New(cfg), client: c, objects: map[Key]*bucket{}, sent: map[string]bool{}, similar: map[string]*similar{}}
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

func TestOneEventStandsForManyThatAreSimilar(t *testing.T) {
	o := &outbox{Agent: New(config(t, "", newBoard())), similar: map[string]*similar{}}
	began := time.Unix(1000, 0)
	event := func(n int, reason string) *corev1.Event {
		return &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("web.%d", n)}, InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "web", UID: "1"},
			Type: corev1.EventTypeWarning, Reason: reason, Message: fmt.Sprint("attempt ", n), Count: 1, FirstTimestamp: metav1.NewTime(began.Add(time.Duration(n) * time.Second)),
		}
	}
	send := func(n int, reason string, at time.Time, works bool) string {
		e := event(n, reason)
		s := o.shown(e)
		if done := o.combine(e, s, at); works {
			done()
		}
		return fmt.Sprintf("%s %d %d %s", s.Name, s.Count, s.FirstTimestamp.Unix(), s.Message)
	}
	for n := range maxSimilar {
		if got, want := send(n, "Unhealthy", began, true), fmt.Sprintf("web-n1.%d 1 %d attempt %[1]d", n, 1000+n); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	for _, row := range []struct {
		n      int
		reason string
		after  time.Duration
		works  bool
		want   string
	}{
		{10, "Unhealthy", 0, true, "web-n1.10 1 1010 (combined from similar events): attempt 10"},
		{11, "Unhealthy", time.Minute, false, "web-n1.10 2 1010 (combined from similar events): attempt 11"},
		{11, "Unhealthy", time.Minute, true, "web-n1.10 2 1010 (combined from similar events): attempt 11"},
		{10, "Unhealthy", time.Minute, true, "web-n1.10 3 1010 (combined from similar events): attempt 10"},
		{3, "Unhealthy", time.Minute, true, "web-n1.3 1 1003 attempt 3"},
		{12, "Killing", time.Minute, true, "web-n1.12 1 1012 attempt 12"},
		{13, "Unhealthy", 11 * time.Minute, true, "web-n1.10 4 1010 (combined from similar events): attempt 13"},
		{14, "Unhealthy", 22 * time.Minute, true, "web-n1.14 1 1014 attempt 14"},
	} {
		if got := send(row.n, row.reason, began.Add(row.after), row.works); row.want != "" && got != row.want {
			t.Errorf("%s, want %s", got, row.want)
		}
	}
	for n := range maxSent + 5 {
		send(0, fmt.Sprint(n), began, true)
	}
	if len(o.similar) > maxSent {
		t.Errorf("%d kinds are remembered", len(o.similar))
	}
}
