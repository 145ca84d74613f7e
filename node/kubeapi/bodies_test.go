package kubeapi

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"monopod/node/kubeapi/codec"
)

// TestSlowBodiesDoNotStopWrites of other users.
func TestSlowBodiesDoNotStopWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serveSite(t, Config{Writer: writer{}})
		const maps = "/api/v1/namespaces/default/configmaps"
		post := func(user string, body io.Reader) int {
			r := s.request(user)
			r.Method, r.URL.Path, r.Body = http.MethodPost, maps, io.NopCloser(body)
			r.Header.Set("Content-Type", "application/json")
			answer, err := s.transport.RoundTrip(r)
			if err != nil {
				return 0
			}
			answer.Body.Close()
			return answer.StatusCode
		}
		for range 100 {
			near, far := io.Pipe()
			defer far.Close()
			go post("mallory/monopod:edit", near)
			go func() { _, _ = far.Write([]byte(`{"a":`)) }()
		}
		synctest.Wait()
		began := time.Now()
		code := post("", strings.NewReader(`{"metadata":{"name":"x"}}`))
		if took := time.Since(began); code == http.StatusTooManyRequests || code == 0 || took != 0 {
			t.Errorf("%d after %v", code, took)
		}
		time.Sleep(2 * bodyTime)
		s.api.bodies.mu.Lock()
		defer s.api.bodies.mu.Unlock()
		if s.api.bodies.all != 0 || len(s.api.bodies.byUser) != 0 {
			t.Errorf("left is %+v", &s.api.bodies)
		}
	})
}

func TestBodiesAreBoundedByUser(t *testing.T) {
	b := &bodies{}
	if !b.take("a", maxUserBodies) || b.take("a", 1) {
		t.Error("the limit of a user")
	}
	for _, user := range []string{"b", "c", "d"} {
		if !b.take(user, maxUserBodies) {
			t.Errorf("the limit of all, at %s", user)
		}
	}
	if b.take("e", freeBodies+1) || !b.take("e", freeBodies) {
		t.Error("a small body of another user does not fit, or a large one does")
	}
	b.release("a", maxUserBodies)
	if !b.take("e", codec.MaxBody) || b.byUser["a"] != 0 {
		t.Errorf("after a release: %+v", b)
	}
}

// TestReviewsAreBounded: their bodies count, too.
func TestReviewsAreBounded(t *testing.T) {
	s := serveSite(t, Config{})
	if !s.api.bodies.take("ann", maxUserBodies) {
		t.Fatal("full")
	}
	r := s.request("ann/monopod:view")
	r.Method, r.URL.Path = http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	r.Body = io.NopCloser(strings.NewReader(`{"spec":{"nonResourceAttributes":{"path":"/","verb":"get"}}}`))
	r.Header.Set("Content-Type", "application/json")
	answer, err := s.transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusTooManyRequests || answer.Header.Get("Retry-After") != "1" {
		t.Errorf("%d %v", answer.StatusCode, answer.Header)
	}
}
