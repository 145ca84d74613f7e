package webhook

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"monopod/node/apiserver/apitest"
	"monopod/node/apiserver/client"
)

// judge knows the token "good", and lets its owner do "get stats".
func judge(asked *atomic.Int32, failing *atomic.Bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if failing.Load() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		if r.URL.Path == "/apis/authentication.k8s.io/v1/tokenreviews" {
			var t authenticationv1.TokenReview
			_ = json.NewDecoder(r.Body).Decode(&t)
			if t.Spec.Token == "unsure" {
				t.Status.Error = "the webhook behind it is away"
				_ = json.NewEncoder(w).Encode(t)
				return
			}
			t.Status = authenticationv1.TokenReviewStatus{Authenticated: t.Spec.Token == "good", User: authenticationv1.UserInfo{Username: "ada", Groups: []string{"ops"}}}
			_ = json.NewEncoder(w).Encode(t)
			return
		}
		var s authorizationv1.SubjectAccessReview
		_ = json.NewDecoder(r.Body).Decode(&s)
		a := s.Spec.ResourceAttributes
		s.Status = authorizationv1.SubjectAccessReviewStatus{Allowed: s.Spec.User == "ada" && a.Verb == "get" && a.Subresource == "stats" && a.Name == "n1" && len(s.Spec.Extra["scope"]) == 0, Reason: "rbac"}
		_ = json.NewEncoder(w).Encode(s)
	}
}

func TestAnswersAboutPeopleCountForAWhile(t *testing.T) {
	asked, failing := &atomic.Int32{}, &atomic.Bool{}
	c, err := client.Open(apitest.Liar(t, judge(asked, failing)), "test", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var session *client.Client
	now := time.Unix(0, 0)
	w := New("n1", func() *client.Client { return session })
	w.now = func() time.Time { return now }
	if _, _, err := w.Authenticate(t.Context(), "good"); !errors.Is(err, ErrNoServer) {
		t.Error(err)
	}
	session = c
	is := func(token string, want bool, times int32) {
		t.Helper()
		who, ok, err := w.Authenticate(t.Context(), token)
		if err != nil || ok != want || ok && who.Username != "ada" || asked.Load() != times {
			t.Errorf("%s: %+v %v %v, asked %d times, want %d", token, who, ok, err, asked.Load(), times)
		}
	}
	is("good", true, 1)
	is("bad", false, 2)
	is("good", true, 2)
	is("bad", false, 2)
	failing.Store(true)
	now = now.Add(tokenTTL + time.Second)
	if _, ok, err := w.Authenticate(t.Context(), "good"); ok || err == nil {
		t.Error("an error is no answer")
	}
	failing.Store(false)
	is("good", true, 4)
	ada := authenticationv1.UserInfo{Username: "ada", Groups: []string{"ops"}}
	may := func(verb, subresource string, want bool, times int32) {
		t.Helper()
		ok, reason, err := w.Authorize(t.Context(), ada, verb, subresource)
		if err != nil || ok != want || reason != "rbac" || asked.Load() != times {
			t.Errorf("%s %s: %v %s %v, asked %d times, want %d", verb, subresource, ok, reason, err, asked.Load(), times)
		}
	}
	may("get", "stats", true, 5)
	may("create", "proxy", false, 6)
	now = now.Add(refusedTTL + time.Second)
	may("get", "stats", true, 6)
	may("create", "proxy", false, 7)
	now = now.Add(allowedTTL)
	may("get", "stats", true, 8)
	ada.Extra = map[string]authenticationv1.ExtraValue{"scope": {"none"}} // which may make the answer another one
	may("get", "stats", false, 9)
	ada.Extra = nil
	may("get", "stats", true, 9)
	for n := int32(10); n < 12; n++ { // who cannot tell is asked again
		if _, ok, err := w.Authenticate(t.Context(), "unsure"); ok || err == nil || asked.Load() != n {
			t.Errorf("unsure: %v %v, asked %d times, want %d", ok, err, asked.Load(), n)
		}
	}
}

func TestFewAnswersAreRemembered(t *testing.T) {
	key := func(i int) [sha256.Size]byte { return sha256.Sum256([]byte(strconv.Itoa(i))) }
	for name, c := range map[string]struct{ size, most int }{
		"short":     {1, maxRemembered},
		"long":      {maxRememberedAnswer, maxRememberedSize / maxRememberedAnswer},
		"too long":  {maxRememberedAnswer + 1, 0},
		"no length": {0, maxRemembered},
	} {
		t.Run(name, func(t *testing.T) {
			var m memory[int]
			most := 0
			for i := range 3 * maxRemembered {
				m.keep(key(i), remembered[int]{answer: i, size: c.size})
				if r, ok := m.all[key(i)]; ok != (c.most > 0) || ok && r.answer != i {
					t.Fatalf("answer %d: %v, %t", i, r.answer, ok)
				}
				if most = max(most, len(m.all)); m.size != len(m.all)*c.size {
					t.Fatalf("%d answers of %d bytes are %d bytes", len(m.all), c.size, m.size)
				}
			}
			if most != c.most {
				t.Errorf("at most %d, want %d", most, c.most)
			}
		})
	}
	var m memory[int]
	for range 10 { // the same one again and again is one
		m.keep(key(0), remembered[int]{size: maxRememberedAnswer})
	}
	m.keep(key(0), remembered[int]{size: maxRememberedAnswer + 1})
	if len(m.all) != 0 || m.size != 0 {
		t.Errorf("an answer that does not count any more: %d, %d bytes", len(m.all), m.size)
	}
}

// TestALongAnswerIsUsedButNotKept: of an API server that knows no bounds.
func TestALongAnswerIsUsedButNotKept(t *testing.T) {
	var asked atomic.Int32
	c, err := client.Open(apitest.Liar(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		var review authenticationv1.TokenReview
		_ = json.NewDecoder(r.Body).Decode(&review)
		who := authenticationv1.UserInfo{Username: "ada", Extra: map[string]authenticationv1.ExtraValue{"notes": {"short"}}}
		if review.Spec.Token == "long" {
			who.Extra["notes"] = authenticationv1.ExtraValue{strings.Repeat("x", maxRememberedAnswer)}
		}
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: who}
		_ = json.NewEncoder(w).Encode(review)
	}), "test", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	w := New("n1", func() *client.Client { return c })
	for _, test := range []struct {
		token string
		times int32
	}{{"short", 1}, {"short", 1}, {"long", 2}, {"long", 3}, {"short", 3}} {
		who, ok, err := w.Authenticate(t.Context(), test.token)
		if err != nil || !ok || who.Username != "ada" || asked.Load() != test.times {
			t.Errorf("%s: %s %t %v, asked %d times, want %d", test.token, who.Username, ok, err, asked.Load(), test.times)
		}
	}
}
