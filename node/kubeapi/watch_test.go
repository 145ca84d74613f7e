package kubeapi

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/node/kubeapi/revlog"
	"monopod/node/kubeapi/storage"
)

const (
	allPods = "/api/v1/pods"
	epoch5  = 5 << 32
)

func revision(n int) string { return strconv.Itoa(epoch5 + n) }

func TestWatchBegins(t *testing.T) {
	bookmark := " map[k8s.io/initial-events-end:true]"
	for name, c := range map[string]struct {
		query url.Values
		want  []string
	}{
		"without a version": {values(), []string{"ADDED a@1", "ADDED b@2", "MODIFIED a@3"}},
		"from 0":            {values("resourceVersion", "0", "allowWatchBookmarks", "true"), []string{"ADDED a@1", "ADDED b@2", "MODIFIED a@3"}},
		"from a list":       {values("resourceVersion", revision(2)), []string{"MODIFIED a@3"}},
		"from an older one": {values("resourceVersion", revision(1)), []string{"ADDED b@2", "MODIFIED a@3"}},
		"WatchList": {
			values("sendInitialEvents", "true", "resourceVersionMatch", "NotOlderThan", "allowWatchBookmarks", "true"),
			[]string{"ADDED a@1", "ADDED b@2", "BOOKMARK @2" + bookmark, "MODIFIED a@3"},
		},
		"WatchList without bookmarks": {
			values("sendInitialEvents", "true", "resourceVersionMatch", "NotOlderThan"), []string{"ADDED a@1", "ADDED b@2", "MODIFIED a@3"},
		},
		"WatchList after a restart": {
			values("sendInitialEvents", "true", "resourceVersionMatch", "NotOlderThan", "allowWatchBookmarks", "true", "resourceVersion", "77"),
			[]string{"ADDED a@1", "ADDED b@2", "BOOKMARK @2" + bookmark, "MODIFIED a@3"},
		},
		"no initial events": {values("sendInitialEvents", "false", "resourceVersionMatch", "NotOlderThan"), []string{"MODIFIED a@3"}},
		"after a restart":   {values("resourceVersion", strconv.Itoa(4<<32+9)), []string{"ERROR 410 Expired", "END"}},
		"labels":            {values("labelSelector", "app=web"), []string{"ADDED b@2", "ADDED a@3"}},
		"a field":           {values("fieldSelector", "metadata.name=a"), []string{"ADDED a@1", "MODIFIED a@3"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := serveSite(t, Config{}, testPod("shop", "a", "db"))
				s.list("", allPods)
				s.state.put(testPod("shop", "b", "web"))
				s.list("", allPods)
				w := s.watch("", allPods, c.query)
				defer w.close()
				synctest.Wait()
				s.state.put(testPod("shop", "a", "web"))
				w.expect(c.want...)
			})
		})
	}
}

func TestWatchSelectsByOldAndNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serveSite(t, Config{}, testPod("shop", "a", "web"))
		web := s.watch("", "/api/v1/namespaces/shop/pods", values("labelSelector", "app=web"))
		defer web.close()
		web.expect("ADDED a@1")
		s.state.put(testPod("other", "a", "web"))
		synctest.Wait()
		s.state.put(testPod("shop", "a", "db"))
		web.expect("DELETED a@3")
		s.state.put(testPod("shop", "b", "db"))
		synctest.Wait()
		s.state.put(testPod("shop", "b", "web"))
		web.expect("ADDED b@5")
		s.state.remove(testPod("shop", "a", ""))
		synctest.Wait()
		s.state.remove(testPod("shop", "b", ""))
		web.expect("DELETED b@7")
	})
}

func TestWatchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serveSite(t, Config{}, testPod("shop", "a", "web"))
		for _, c := range []struct {
			query    url.Values
			from, to time.Duration
			last     string
		}{
			{values("timeoutSeconds", "90", "allowWatchBookmarks", "true"), 90 * time.Second, 90 * time.Second, "BOOKMARK @1"},
			{values("timeoutSeconds", "90"), 90 * time.Second, 90 * time.Second, "END"},
			{values("timeoutSeconds", "86400"), maxWatch, maxWatch, "END"},
			{values(), minWatch, maxWatch, "END"},
		} {
			start := time.Now()
			w := s.watch("", allPods, c.query)
			w.expect("ADDED a@1", c.last)
			if took := time.Since(start); took < c.from || took > c.to {
				t.Errorf("%v took %v", c.query, took)
			}
			w.close()
		}
		synctest.Wait()
		if n := s.state.watchers(); n != 0 || len(s.api.watches.byUser) != 0 {
			t.Errorf("%d subscriptions and %v are left", n, s.api.watches.byUser)
		}
	})
}

func TestWatchOfAClientThatLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serveSite(t, Config{})
		w := s.watch("", allPods, values())
		synctest.Wait()
		if s.state.watchers() != 1 {
			t.Fatal("there is no watch")
		}
		w.close()
		synctest.Wait()
		if n := s.state.watchers(); n != 0 {
			t.Errorf("%d subscriptions are left", n)
		}
	})
}

func TestSlowReadersHoldUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serveSite(t, Config{})
		slow, quick := s.watch("", allPods, values()), s.watch("", allPods, values())
		defer slow.close()
		got := make(chan string)
		go func() {
			for text := ""; text != "END" && !strings.HasPrefix(text, "BROKEN"); {
				text = quick.next()
				got <- text
			}
			close(got)
		}()
		big := testPod("shop", "a", "x")
		big.Annotations = map[string]string{"big": strings.Repeat("x", 1<<20)}
		s.state.put(big)
		start := time.Now()
		if text := <-got; !strings.HasPrefix(text, "ADDED a@2 ") || time.Since(start) > 0 {
			t.Errorf("%.20s after %v", text, time.Since(start))
		}
		defer func() {
			quick.close()
			for range got {
			}
		}()
		time.Sleep(eventTimeout + time.Second)
		synctest.Wait()
		if n := s.state.watchers(); n != 1 {
			t.Errorf("%d watches are left", n)
		}
	})
}

func TestOvertakenWatchExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serveSite(t, Config{})
		w := s.watch("", allPods, values())
		defer w.close()
		big := testPod("shop", "big", "x")
		big.Annotations = map[string]string{"big": strings.Repeat("x", 1<<16)}
		s.state.put(big)
		synctest.Wait() // the watch hangs in this event
		for i := range 1100 {
			s.state.put(testPod("shop", "a", strconv.Itoa(i)))
			s.sync()
		}
		if got := w.next(); !strings.HasPrefix(got, "ADDED big@2") {
			t.Errorf("%.20s", got)
		}
		w.expect("ERROR 410 Expired", "END")
	})
}

func TestWatchIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serveSite(t, Config{})
		s.state.unseen[secretKind] = fmt.Errorf("the disk is gone")
		for target, want := range map[string]string{
			allPods + "?watch=true&resourceVersion=" + revision(100):                                                          "504 Timeout Timeout: Too large resource version",
			allPods + "?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=" + revision(100): "504 Timeout Timeout: Too large",
			allPods + "?watch=true&resourceVersion=x":                                                                         "400 BadRequest invalid resourceVersion",
			allPods + "?watch=true&sendInitialEvents=true":                                                                    "422 Invalid",
			allPods + "?watch=true&fieldSelector=x%3Dy":                                                                       "400 BadRequest field label not supported: x",
			"/api/v1/secrets?watch=true":                                                                                      "503 ServiceUnavailable secrets are not available yet: the disk is gone",
			"/apis/metrics.k8s.io/v1beta1/pods?watch=true":                                                                    "405 MethodNotAllowed",
			"/apis/batch/v1/jobs?watch=1&labelSelector=%21%21":                                                                "400 BadRequest",
			allPods + "?watch=true&resourceVersion=" + revision(100):                                                          "504 Timeout Timeout: Too large resource version",
		} {
			if got := s.status("", "GET", target); !strings.HasPrefix(got, want) {
				t.Errorf("%s: %s", target, got)
			}
		}
		if n := s.state.watchers(); n != 0 || len(s.api.watches.byUser) != 0 {
			t.Errorf("%d subscriptions and %v are left", n, s.api.watches.byUser)
		}
	})
}

func TestWatchesOfAUserAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serveSite(t, Config{})
		var open []*watched
		for range maxWatches {
			open = append(open, s.watch("ann/monopod:view", allPods, values()))
		}
		answer := s.do("ann/monopod:view", "GET", allPods+"?watch=1")
		if answer.StatusCode != http.StatusTooManyRequests || answer.Header.Get("Retry-After") != strconv.Itoa(watchRetry) {
			t.Errorf("one too many: %d %v", answer.StatusCode, answer.Header)
		}
		answer.Body.Close()
		open = append(open, s.watch("bob/monopod:view", allPods, values()))
		open[0].close()
		synctest.Wait()
		open = append(open, s.watch("ann/monopod:view", allPods, values()))
		for _, w := range open {
			w.close()
		}
	})
}

// ofFile returns a Secret as State has one that a file defines.
func ofFile(name string) *corev1.Secret {
	o := testSecret(name)
	o.Annotations = map[string]string{storage.AnnotationOrigin: "/m/app.yaml:1"}
	return o
}

func TestHiddenSecretsInWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serveSite(t, Config{Writer: writer{applied: []string{"mine", "later"}}}, testSecret("mine"), ofFile("of-file"))
		secrets := "/api/v1/namespaces/shop/secrets"
		w := s.watch("ann/monopod:edit", secrets, values())
		defer w.close()
		w.expect("ADDED mine@1")
		changed := ofFile("of-file")
		changed.Data = nil
		s.state.put(changed)
		s.sync()
		s.state.remove(changed)
		s.sync()
		s.state.put(testSecret("later"))
		w.expect("ADDED later@4") // and nothing of what was hidden
		s.state.remove(testSecret("later"))
		w.expect("DELETED later@5")
		v := view{server: s.api, user: userOf(s.request("ann/monopod:edit")), kind: secretKind, options: options(t, "", secretKind)}
		kind, o := (&events{view: v}).event(revlog.Event{Revision: 9, Old: testSecret("gone")})
		if secret := o.(*corev1.Secret); kind != "DELETED" || len(secret.Data) != 0 || secret.Name != "gone" {
			t.Errorf("%s %v", kind, secret)
		}
		if kind, o := (&events{view: v}).event(revlog.Event{Revision: 9, Old: ofFile("gone")}); o != nil {
			t.Errorf("what was hidden: %s %v", kind, o)
		}
		v.user = userOf(s.request(""))
		if kind, _ := (&events{view: v}).event(revlog.Event{Revision: 9, Old: ofFile("gone")}); kind != "DELETED" {
			t.Errorf("root: %q", kind)
		}
		if _, o := (&events{view: v}).event(revlog.Event{Revision: 9, Old: testSecret("gone")}); len(o.(*corev1.Secret).Data) == 0 {
			t.Error("root does not get the last state")
		}
	})
}
