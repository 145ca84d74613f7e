package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWhichLogIsMeant(t *testing.T) {
	for _, c := range []struct {
		name       string
		containers []string
		query      string
		want       Instance
		code       int
		message    string
	}{
		{"the only container need not be named", []string{"c running"}, "", Instance{Container: "c", ID: "now"}, 200, ""},
		{"one of two must be named", []string{"c running", "d running"}, "", Instance{}, 400, "a container name must be specified for pod x, choose one of: [c d]"},
		{"a named one", []string{"c running", "d running"}, "container=d", Instance{Container: "d", ID: "now"}, 200, ""},
		{"a container that does not exist", []string{"c running"}, "container=z", Instance{}, 404, `container "z" not found in pod "x"`},
		{"a container without status", []string{"c unknown"}, "", Instance{}, 400, `container "c" in pod "x" is waiting to start - no logs yet`},
		{"one that waits", []string{"c waiting ContainerCreating"}, "", Instance{}, 400, `container "c" in pod "x" is waiting to start: ContainerCreating`},
		{"one that waits for nothing in particular", []string{"c waiting"}, "", Instance{}, 400, `container "c" in pod "x" is waiting to start - no logs yet`},
		{"a failed pull", []string{"c waiting ErrImagePull"}, "", Instance{}, 400, `container "c" in pod "x" is waiting to start: image can't be pulled`},
		{"repeated failed pulls", []string{"c waiting ImagePullBackOff"}, "", Instance{}, 400, `container "c" in pod "x" is waiting to start: trying and failing to pull image`},
		{"one that has ended", []string{"c ended"}, "", Instance{Container: "c", ID: "now"}, 200, ""},
		{"one that waits for its restart: the run that crashed", []string{"c crashed"}, "", Instance{Container: "c", ID: "old"}, 200, ""},
		{"previous of one that waits for its restart: the same", []string{"c crashed"}, "previous=true", Instance{Container: "c", ID: "old"}, 200, ""},
		{"the next instance is prepared: the last run", []string{"c prepared"}, "", Instance{Container: "c", ID: "old", Successor: "now"}, 200, ""},
		{"previous of a running one", []string{"c rerunning"}, "previous=true", Instance{Container: "c", ID: "old", Successor: "now"}, 200, ""},
		{"previous that never was", []string{"c running"}, "previous=1", Instance{}, 400, `previous terminated container "c" in pod "x" not found`},
		{"a bad parameter", []string{"c running"}, "tailLines=-1", Instance{}, 422, "Invalid request: tailLines: must be at least 0"},
		{"several bad parameters", []string{"c running"}, "follow=perhaps&limitBytes=0&sinceTime=noon", Instance{}, 422, "limitBytes: must be at least 1; sinceTime: "},
		{"both since", []string{"c running"}, "sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z", Instance{}, 422, "at most one of"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := &machine{readLog: func(_ context.Context, _ LogQuery, w io.Writer) error {
				_, err := io.WriteString(w, "line\n")
				return err
			}}
			m.set(view("a", "x", c.containers...))
			code, body := ask(t, m.server(), http.MethodGet, "/api/v1/namespaces/a/pods/x/log?"+c.query)
			if code != c.code {
				t.Fatalf("%d %s", code, body)
			}
			if code != http.StatusOK {
				var s metav1.Status
				if err := json.Unmarshal([]byte(body), &s); err != nil || !strings.Contains(s.Message, c.message) {
					t.Errorf("%v %s", err, body)
				}
				return
			}
			if body != "line\n" || m.queries[0].Instance != c.want || m.queries[0].Pod.Name != "x" {
				t.Errorf("%q: %+v", body, m.queries[0].Instance)
			}
		})
	}
}

func TestLogParametersReachTheReader(t *testing.T) {
	m := &machine{readLog: func(context.Context, LogQuery, io.Writer) error { return nil }}
	m.set(view("a", "x", "c running"))
	s := m.server()
	before := time.Now()
	for _, q := range []string{"", "tailLines=all", "tailLines=0&timestamps=true&limitBytes=7&sinceSeconds=60", "sinceTime=2026-01-01T00:00:00Z", "timestamps&tailLines=2&stream=Stderr", "stream=All"} {
		if code, body := ask(t, s, http.MethodGet, "/api/v1/namespaces/a/pods/x/log?"+q); code != http.StatusOK {
			t.Fatalf("%s: %d %s", q, code, body)
		}
	}
	q := m.queries
	if q[0].Tail != -1 || q[0].Timestamps || q[0].LimitBytes != 0 || !q[0].Since.IsZero() || q[0].Follow || q[1].Tail != -1 {
		t.Errorf("defaults: %+v", q[0])
	}
	since := q[2].Since.Add(time.Minute)
	if q[2].Tail != 0 || !q[2].Timestamps || q[2].LimitBytes != 7 || since.Before(before.Add(-time.Second)) || since.After(time.Now()) {
		t.Errorf("all: %+v", q[2])
	}
	if !q[3].Since.Equal(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("since: %v", q[3].Since)
	}
	if !q[4].Timestamps || q[4].Tail != 2 || q[4].Stream != "Stderr" || q[5].Stream != "" {
		t.Errorf("without a value: %+v, %+v", q[4], q[5])
	}
}

func TestALogThatCannotBeReadIsAnErrorOnlyBeforeItsFirstByte(t *testing.T) {
	m := &machine{}
	m.set(view("a", "x", "c running"))
	m.readLog = func(context.Context, LogQuery, io.Writer) error { return errors.New("disk gone") }
	if code, body := ask(t, m.server(), http.MethodGet, "/api/v1/namespaces/a/pods/x/log"); code != http.StatusInternalServerError || !strings.Contains(body, "disk gone") {
		t.Errorf("%d %s", code, body)
	}
	m.readLog = func(_ context.Context, _ LogQuery, w io.Writer) error {
		fmt.Fprint(w, "half")
		return errors.New("disk gone")
	}
	if code, body := ask(t, m.server(), http.MethodGet, "/api/v1/namespaces/a/pods/x/log"); code != http.StatusOK || body != "half" {
		t.Errorf("%d %s", code, body)
	}
}

func TestAFollowerHearsOfTheEndOfItsContainer(t *testing.T) {
	for name, end := range map[string]PodView{
		"it has ended": view("a", "x", "c ended"),
		"it was replaced": func() PodView {
			v := view("a", "x", "c running")
			v.Pod.Status.ContainerStatuses[0].ContainerID = "containerd://next"
			return v
		}(),
		"the pod is another one":       func() PodView { v := view("a", "x", "c running"); v.Pod.UID = "uid-2"; return v }(),
		"the pod of that name is gone": view("a", "other"),
	} {
		t.Run(name, func(t *testing.T) {
			m := &machine{}
			following := make(chan struct{})
			m.readLog = func(ctx context.Context, q LogQuery, _ io.Writer) error {
				close(following)
				select {
				case <-q.Ended:
					return nil
				case <-ctx.Done():
					return errors.New("was not told")
				}
			}
			m.set(view("a", "x", "c running"))
			done := make(chan string, 1)
			go func() {
				code, body := ask(t, m.server(), http.MethodGet, "/api/v1/namespaces/a/pods/x/log?follow=true")
				done <- fmt.Sprint(code, body)
			}()
			<-following
			m.set(view("a", "x", "c running")) // a change that is none for the follower
			m.set(end)
			if got := <-done; got != "200" {
				t.Errorf("answer: %s", got)
			}
			m.subscriptions(t, 0)
		})
	}
}
