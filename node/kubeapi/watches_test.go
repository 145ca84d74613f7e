package kubeapi

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"monopod/node/kubeapi/access"
)

// deadlines records the write deadlines of a response.
type deadlines struct {
	*httptest.ResponseRecorder
	set []time.Time
}

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.set = append(d.set, t)
	return nil
}

// TestWatchesOfOtherHandlersAreLimited: they count together with those of the Server.
func TestWatchesOfOtherHandlersAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := NewWatches()
		release := make(chan struct{})
		h := all.Limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write([]byte("{}"))
			select {
			case <-r.Context().Done():
			case <-release:
			}
		}))
		ask := func(user, query string, over bool) *deadlines {
			w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
			r := httptest.NewRequestWithContext(access.WithUser(t.Context(), access.User{Name: user}), http.MethodGet, "/apis/monopod.dev/v1alpha1/podreports"+query, nil)
			if over {
				r.TLS = &tls.ConnectionState{}
			}
			h.ServeHTTP(w, r)
			return w
		}
		began := time.Now()
		for range maxWatches - 1 {
			go ask("ann", "?watch=1", false)
		}
		ended := make(chan time.Duration)
		go func() {
			w := ask("ann", "?watch=true", true)
			if len(w.set) != 1 || w.set[0].Sub(began) != eventTimeout || w.Header().Get("Connection") != "close" {
				t.Errorf("%v, %v", w.set, w.Header())
			}
			ended <- time.Since(began)
		}()
		synctest.Wait()
		if w := ask("ann", "?watch=1", true); w.Code != http.StatusTooManyRequests {
			t.Errorf("one too many: %d", w.Code)
		}
		if _, err := all.begin("ann"); err == nil {
			t.Error("the Server counts on its own")
		}
		if took := <-ended; took < minWatch || took > maxWatch {
			t.Errorf("ended after %v", took)
		}
		close(release)
		if w := ask("bob", "?watch=1", true); w.Code != http.StatusOK {
			t.Errorf("another user: %d", w.Code)
		}
		if w := ask("ann", "", true); w.Code != http.StatusOK || len(w.set) != 0 {
			t.Errorf("a list: %d %v", w.Code, w.set)
		}
		synctest.Wait()
		if len(all.byUser) != 0 {
			t.Errorf("%v are counted", all.byUser)
		}
	})
}
