package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
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
	c, err := Open(liar(t, judge(asked, failing)), "test", quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	a, now := New(config(t, "", newBoard())), time.Unix(0, 0)
	w := a.Webhook()
	w.now = func() time.Time { return now }
	if _, _, err := w.Authenticate(t.Context(), "good"); !errors.Is(err, ErrNoServer) {
		t.Error(err)
	}
	a.setClient(c)
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
	m := map[string]remembered[bool]{}
	for i := range 3 * maxRemembered {
		keep(m, fmt.Sprint(i), remembered[bool]{})
	}
	if len(m) > maxRemembered {
		t.Error(len(m))
	}
}
