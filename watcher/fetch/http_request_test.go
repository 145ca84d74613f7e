package fetch

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"monopod/internal/model"
	"monopod/watcher"
	"monopod/watcher/watchertest"
)

func TestTheRequestCarriesHeadersAndValidators(t *testing.T) {
	got := make(chan *http.Request, 100)
	web := newWebServer(t, func(rw http.ResponseWriter, r *http.Request) {
		select {
		case got <- r:
		default:
		}
		if r.Header.Get("If-None-Match") == `"v1"` {
			rw.WriteHeader(http.StatusNotModified)
			return
		}
		rw.Header().Set("ETag", `"v1"`)
		rw.Header().Set("Last-Modified", "Fri, 20 Nov 2026 18:00:00 GMT")
		text("pod x v1\n")(rw, r)
	})
	s := askOften(t, web.URL+"/pods", func(c *HTTPConfig) {
		c.Header = http.Header{"authorization": {"Bearer t"}, "X-Many": {"1", "2"}, "Host": {"pods.example"}}
	})
	s.Until("x", func(set watcher.Set) bool { return len(set.Pods) == 1 })
	first, second := <-got, <-got
	if first.Header.Get("Authorization") != "Bearer t" || !slices.Equal(first.Header["X-Many"], []string{"1", "2"}) || first.Host != "pods.example" {
		t.Errorf("first request: host %s, %v", first.Host, first.Header)
	}
	if first.Header.Get("If-None-Match")+first.Header.Get("If-Modified-Since") != "" {
		t.Errorf("the first request is conditional: %v", first.Header)
	}
	if second.Header.Get("If-None-Match") != `"v1"` || second.Header.Get("If-Modified-Since") != "Fri, 20 Nov 2026 18:00:00 GMT" {
		t.Errorf("the second request is not conditional: %v", second.Header)
	}
	<-got
	if sets := s.History(); len(sets) != 1 || s.Loader.Calls.Load() != 1 {
		t.Errorf("%d sets, %d parsed, for answers that say nothing changed", len(sets), s.Loader.Calls.Load())
	}
}

func TestARedirectOnTheSameHostIsFollowed(t *testing.T) {
	web := newWebServer(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/old" {
			http.Redirect(rw, r, "/new", http.StatusMovedPermanently)
			return
		}
		text("pod x v1\n")(rw, r)
	})
	askOften(t, web.URL+"/old").Until("x", func(set watcher.Set) bool { return len(set.Pods) == 1 })
}

func TestARedirectToPlainHTTPIsRefused(t *testing.T) {
	from, err := url.Parse("https://h/a")
	watchertest.Must(t, err)
	to, err := url.Parse("http://h/a")
	watchertest.Must(t, err)
	if err := sameHost(&http.Request{URL: to}, []*http.Request{{URL: from}}); err == nil {
		t.Error("followed from https to http")
	}
	if err := sameHost(&http.Request{URL: from}, []*http.Request{{URL: to}}); err != nil {
		t.Errorf("from http to https: %v", err)
	}
}

func TestAPasswordInTheURLIsSentAndNotShown(t *testing.T) {
	web := newWebServer(t, func(rw http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != "secret" {
			rw.WriteHeader(http.StatusUnauthorized)
			return
		}
		text("pod x v1\n")(rw, r)
	})
	s := askOften(t, strings.Replace(web.URL, "http://", "http://user:secret@", 1))
	set := s.Until("x", func(set watcher.Set) bool { return len(set.Pods) == 1 })
	web.Close()
	down := s.State(set.Inputs[0].Input, model.InputUnreachable)
	for _, shown := range []string{fmt.Sprintf("%+v", set.Inputs), fmt.Sprintf("%+v", down.Inputs), set.Pods[0].Origin.File} {
		if strings.Contains(shown, "secret") {
			t.Errorf("shown: %s", shown)
		}
	}
}

func TestRedactURL(t *testing.T) {
	for url, want := range map[string]string{
		"": "", "https://h/p#f": "https://h/p#f", "https://h/p?": "https://h/p?",
		"https://h/p?TOKEN#f": "https://h/p?xxxxx#f", "https://me:secret@h/p?node=1&sig=a=b%20c&": "https://me:xxxxx@h/p?node=xxxxx&sig=xxxxx",
		"https://me:secret@h/": "https://me:xxxxx@h/", "https://TOKEN@h/": "https://xxxxx@h/",
		"https://me:secret@h:port/": "(not a URL)", "me:secret@h/": "(not a URL)", "secret@h/": "(not a URL)", "pods.yaml": "pods.yaml", "https://h/~@me": "https://h/~@me",
	} {
		if got := RedactURL(url); got != want {
			t.Errorf("%q is shown as %q, want %q", url, got, want)
		}
	}
}

func TestATokenInTheURLIsInNoError(t *testing.T) {
	web := newWebServer(t, text("pod x v1\n"))
	address := strings.Replace(web.URL, "http://", "http://hunter2@", 1)
	web.Close()
	for _, u := range []string{address, "http://me:hunter2@h:port/", web.URL + "/?sig=hunter2"} {
		_, err := newHTTPFetcher(HTTPConfig{URL: u}, RedactURL(u)).Fetch(t.Context(), Validators{})
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("it says: %v", err)
		}
	}
}

func TestPausesOfTheHTTPSource(t *testing.T) {
	s := NewHTTPSource(HTTPConfig{URL: "http://h/"})
	for i, want := range []time.Duration{20, 1, 2, 4, 8, 16, 20, 20} {
		if s.failures = i; s.delay() != want*time.Second {
			t.Errorf("pause after %d failures is %v, want %v s", i, s.delay(), int(want))
		}
	}
	s.failures = 1 << 30
	if s.delay() != 20*time.Second {
		t.Errorf("pause after very many failures is %v", s.delay())
	}
	low, high := time.Hour, time.Duration(0)
	for range 1000 {
		d := spread(20 * time.Second)
		low, high = min(low, d), max(high, d)
	}
	if low < 18*time.Second || high > 22*time.Second || high-low < 2*time.Second {
		t.Errorf("pauses from %v to %v", low, high)
	}
}

func TestTheSameFailureIsReportedOnce(t *testing.T) {
	reset := func(rw http.ResponseWriter, _ *http.Request) {
		conn, _, err := rw.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		_ = conn.(*net.TCPConn).SetLinger(0) // the client reads a reset, with its own port in the message
		_ = conn.Close()
	}
	web := newWebServer(t, text("pod x v1\n"))
	s := askOften(t, web.URL)
	s.State(web.URL, model.InputAccepted)
	web.answer(reset)
	set := s.State(web.URL, model.InputUnreachable)
	if why := set.Inputs[0].Errors[0]; strings.Contains(why, "->") {
		t.Errorf("reason %q", why)
	}
	asked := web.asked.Load()
	s.WaitFor("ten more requests", func() bool { return web.asked.Load() > asked+10 })
	for _, set := range s.History() {
		for _, why := range set.Inputs[0].Errors {
			if strings.Contains(why, "->") {
				t.Errorf("reason %q", why)
			}
		}
	}
	reasons := map[string]bool{}
	for _, set := range s.History() {
		reasons[strings.Join(set.Inputs[0].Errors, "\n")] = true
	}
	if len(reasons) > 4 { // none, reset, and perhaps EOF or broken pipe in between
		t.Errorf("one failure has the reasons %q", slices.Sorted(maps.Keys(reasons)))
	}
}

func TestLocalAddressesAreTakenOutOfErrors(t *testing.T) {
	tests := map[string]string{
		"read tcp 127.0.0.1:51234->127.0.0.1:80: read: connection reset": "read tcp 127.0.0.1:80: read: connection reset",
		"read udp [fe80::1%eth0]:43434->[fd00::2]:53: i/o timeout":       "read udp [fd00::2]:53: i/o timeout",
		"dial tcp 127.0.0.1:80: connect: connection refused":             "dial tcp 127.0.0.1:80: connect: connection refused",
	}
	for in, want := range tests {
		if got := localAddress.ReplaceAllString(in, "$1"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestValuesOfHeadersAreReadFromFilesAtEachRequest(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	web := newWebServer(t, func(rw http.ResponseWriter, r *http.Request) {
		text("pod x "+strings.ReplaceAll(r.Header.Get("Authorization"), " ", "-")+"\n")(rw, r)
	})
	s := askOften(t, web.URL, func(c *HTTPConfig) {
		c.HeaderFiles = []HeaderFile{{Name: "authorization", Before: "Bearer ", File: file}}
	})
	set := s.State(web.URL, model.InputUnreachable)
	if !strings.Contains(set.Inputs[0].Errors[0], "header authorization: open "+file) {
		t.Errorf("%+v", set.Inputs)
	}
	for _, token := range []string{"one", "two"} {
		watchertest.Replace(t, file, " "+token+"\n")
		s.Until(token, func(set watcher.Set) bool {
			return strings.HasPrefix(watchertest.Content(set.Pods), "x=Bearer-"+token+"@")
		})
	}
	for bad, why := range map[string]string{"": "is empty", "se\ncret": "more than one line", strings.Repeat("secret", maxHeaderFile): "at most"} {
		watchertest.Replace(t, file, bad)
		set := s.Until(why, func(set watcher.Set) bool {
			return len(set.Inputs[0].Errors) > 0 && strings.Contains(set.Inputs[0].Errors[0], why)
		})
		if all := fmt.Sprintf("%+v", set.Inputs); strings.Contains(all, "cret") && bad != "" {
			t.Errorf("shown: %s", all)
		}
	}
	s.NeverWithout("x")
}

func TestTheProxyOfTheEnvironmentIsAsked(t *testing.T) {
	const child = "MONOPOD_TEST_BEHIND_PROXY"
	if os.Getenv(child) != "" {
		s := askOften(t, "http://fleet.invalid/pods")
		s.Until("an answer by the proxy", func(set watcher.Set) bool {
			return strings.HasPrefix(watchertest.Content(set.Pods), "x=fleet.invalid@")
		})
		return
	}
	proxy := newWebServer(t, func(rw http.ResponseWriter, r *http.Request) {
		text("pod x "+r.URL.Host+"\n")(rw, r)
	})
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1") // a process reads it once
	cmd.Env = append(os.Environ(), child+"=1", "HTTP_PROXY="+proxy.URL, "NO_PROXY=")
	if out, err := cmd.CombinedOutput(); err != nil || proxy.asked.Load() == 0 {
		t.Errorf("%v, the proxy was asked %d times:\n%s", err, proxy.asked.Load(), out)
	}
}
