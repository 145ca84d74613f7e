package fetch

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"monopod/internal/loopback"
	"monopod/internal/model"
	"monopod/manifests"
	"monopod/watcher"
	"monopod/watcher/watchertest"
)

// webServer is an HTTP server whose answer can be changed under way.
type webServer struct {
	*httptest.Server
	handler atomic.Pointer[http.HandlerFunc]
	asked   atomic.Int64
}

// newWebServer listens on an address that stays unused after the server is closed.
func newWebServer(t *testing.T, h http.HandlerFunc) *webServer {
	t.Helper()
	w := unstartedWebServer(h)
	watchertest.Must(t, w.Listener.Close())
	w.Listener = loopback.Listen(t)
	w.Start()
	t.Cleanup(w.Close)
	return w
}

func unstartedWebServer(h http.HandlerFunc) *webServer {
	w := &webServer{}
	w.answer(h)
	w.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.asked.Add(1)
		(*w.handler.Load())(rw, r)
	}))
	w.Config.ErrorLog = log.New(io.Discard, "", 0)
	return w
}

func (w *webServer) answer(h http.HandlerFunc) { w.handler.Store(&h) }

func text(body string) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, body) }
}

func status(code int) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) {
		rw.WriteHeader(code)
		_, _ = io.WriteString(rw, "pod never v1\n")
	}
}

// raw answers with exactly these bytes and closes the connection.
func raw(answer string) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) {
		conn, _, err := rw.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = io.WriteString(conn, answer)
		_ = conn.Close()
	}
}

func askOften(t *testing.T, address string, change ...func(*HTTPConfig)) *watchertest.Runner {
	t.Helper()
	loader := &watchertest.LineLoader{Source: "http"}
	cfg := HTTPConfig{URL: address, CheckFrequency: 2 * time.Millisecond, Load: loader.Load}
	for _, f := range change {
		f(&cfg)
	}
	s := watchertest.StartSource(t, NewHTTPSource(cfg))
	s.Loader = loader
	return s
}

func TestOnlyAValidAnswerChangesAnything(t *testing.T) {
	other := newWebServer(t, text("pod stolen v1\n"))
	tests := []struct {
		name   string
		answer http.HandlerFunc
		want   model.InputState
		why    string
	}{
		{"server error", status(500), model.InputUnreachable, "500 Internal Server Error"},
		{"not found", status(404), model.InputUnreachable, "404"},
		{"forbidden", status(403), model.InputUnreachable, "403"},
		{"success of another kind", status(202), model.InputUnreachable, "202"},
		{"part of the content", status(206), model.InputUnreachable, "206"},
		{"no content", status(204), model.InputUnreachable, "204"},
		{"redirect to another host", http.RedirectHandler(other.URL, http.StatusFound).ServeHTTP, model.InputUnreachable, "leads to another host"},
		{"endless redirects", func(rw http.ResponseWriter, r *http.Request) { http.Redirect(rw, r, "/again", http.StatusFound) }, model.InputUnreachable, "more than 10"},
		{"a web page", func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Content-Type", "text/html; charset=utf-8")
			text("pod html v1\n")(rw, r)
		}, model.InputRefused, "web page"},
		{"empty body", text(""), model.InputRefused, "empty"},
		{"white space", text(" \n\n"), model.InputRefused, "empty"},
		{"invalid body", text("pod x v2\nnonsense\n"), model.InputRefused, "not a pod"},
		{"a body that crashes the loader", text("panic\n"), model.InputRefused, "crashes the reader"},
		{"body shorter than announced", raw("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npod x v2\n"), model.InputUnreachable, "unexpected EOF"},
		{"chunks cut off", raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\npod x v2\n\r\n"), model.InputUnreachable, "unexpected EOF"},
		{"body of unknown length", raw("HTTP/1.0 200 OK\r\n\r\npod x v2\n"), model.InputRefused, "truncation"},
		{"no answer at all", raw(""), model.InputUnreachable, "EOF"},
		{"something else than HTTP", raw("SSH-2.0-OpenSSH_9.2\r\n"), model.InputUnreachable, "malformed HTTP"},
		{"gzip cut off", raw("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + string(zip("pod x v2\n")[:20])), model.InputUnreachable, "unexpected EOF"},
		{"larger than the limit", func(rw http.ResponseWriter, _ *http.Request) {
			_, _ = rw.Write(bytes.Repeat([]byte("#"), watcher.MaxInput+1))
		}, model.InputRefused, "larger than 10 MiB"},
		{"drop by drop", func(rw http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(rw, "pod x v2\n")
			rw.(http.Flusher).Flush()
			<-r.Context().Done()
		}, model.InputUnreachable, "Timeout"},
		{"no header in time", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, model.InputUnreachable, "Timeout"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			web := newWebServer(t, text("pod x v1\n"))
			s := askOften(t, web.URL, func(c *HTTPConfig) {
				if tt.why == "Timeout" {
					c.Client = &http.Client{Timeout: 100 * time.Millisecond}
				}
			})
			s.Until("the first content", func(set watcher.Set) bool { return strings.HasPrefix(watchertest.Content(set.Pods), "x=v1@") })
			web.answer(tt.answer)
			set := s.State(web.URL, tt.want)
			r := set.Inputs[0]
			if set.Unread || !strings.HasPrefix(watchertest.Content(set.Pods), "x=v1@") || !slices.Equal(r.Pods, []string{"default/x"}) {
				t.Errorf("unread %v, pods %q, report %+v", set.Unread, watchertest.Content(set.Pods), r)
			}
			if !strings.Contains(strings.Join(r.Errors, "\n"), tt.why) {
				t.Errorf("reasons %q, want one with %q", r.Errors, tt.why)
			}
			web.answer(text("pod x v3\npod y v3\n"))
			s.Until("new content", func(set watcher.Set) bool {
				return len(set.Pods) == 2 && watchertest.StateOf(set, web.URL) == model.InputAccepted
			})
			s.NeverWithout("x")
		})
	}
}

func zip(data string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, data)
	_ = w.Close()
	return b.Bytes()
}

func TestAnEmptyValidAnswerRemovesThePods(t *testing.T) {
	web := newWebServer(t, text("pod x v1\n"))
	s := askOften(t, web.URL)
	s.Until("x", func(set watcher.Set) bool { return len(set.Pods) == 1 })
	web.answer(text("# an empty list\n"))
	s.Until("nothing", func(set watcher.Set) bool {
		return len(set.Pods) == 0 && watchertest.StateOf(set, web.URL) == model.InputAccepted
	})
}

func TestAnUnreachableServerIsUnreadUntilItAnswers(t *testing.T) {
	web := newWebServer(t, status(503))
	s := askOften(t, web.URL)
	if set := s.State(web.URL, model.InputUnreachable); !set.Unread || len(set.Pods) > 0 {
		t.Fatalf("%+v", set)
	}
	web.answer(text("broken"))
	if set := s.State(web.URL, model.InputRefused); !set.Unread {
		t.Fatalf("%+v", set)
	}
	web.answer(text("pod x v1\n"))
	if set := s.State(web.URL, model.InputAccepted); set.Unread || len(set.Pods) != 1 {
		t.Fatalf("%+v", set)
	}
	web.Close()
	if set := s.State(web.URL, model.InputUnreachable); set.Unread || len(set.Pods) != 1 {
		t.Fatalf("%+v", set)
	}
}

func TestACertificateNobodyVouchesForIsAReport(t *testing.T) {
	web := httptest.NewUnstartedServer(text("pod x v1\n"))
	web.Config.ErrorLog = log.New(io.Discard, "", 0)
	web.StartTLS()
	defer web.Close()
	set := askOften(t, web.URL).State(web.URL, model.InputUnreachable)
	if !set.Unread || !strings.Contains(set.Inputs[0].Errors[0], "certificate") {
		t.Fatalf("%+v", set)
	}
	trusting := askOften(t, web.URL, func(c *HTTPConfig) { c.Client = web.Client() })
	trusting.Until("x", func(set watcher.Set) bool { return len(set.Pods) == 1 })
}

func TestAServerThatGoesBackToTheGoodAnswerIsBelieved(t *testing.T) {
	var bad atomic.Bool
	web := newWebServer(t, func(rw http.ResponseWriter, r *http.Request) {
		switch {
		case bad.Load():
			rw.Header().Set("ETag", `"bad"`)
			text("broken")(rw, r)
		case r.Header.Get("If-None-Match") == `"good"`:
			rw.WriteHeader(http.StatusNotModified)
		default:
			rw.Header().Set("ETag", `"good"`)
			text("pod x v1\n")(rw, r)
		}
	})
	s := askOften(t, web.URL)
	s.State(web.URL, model.InputAccepted)
	bad.Store(true)
	s.State(web.URL, model.InputRefused)
	parsed := s.Loader.Calls.Load()
	asked := web.asked.Load()
	s.WaitFor("three more requests", func() bool { return web.asked.Load() > asked+3 })
	if s.Loader.Calls.Load() != parsed {
		t.Error("the same refused answer was parsed again")
	}
	bad.Store(false)
	s.State(web.URL, model.InputAccepted)
	s.NeverWithout("x")
}

func TestA304ToAnUnconditionalRequestIsNoAnswer(t *testing.T) {
	web := newWebServer(t, status(304))
	if set := askOften(t, web.URL).State(web.URL, model.InputUnreachable); !set.Unread {
		t.Errorf("%+v", set)
	}
}

func TestGzipAndUndelimitedJSONAreAccepted(t *testing.T) {
	tests := map[string]http.HandlerFunc{
		"gzip":                   raw("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + string(zip("{pod}\n"))),
		"JSON of unknown length": raw("HTTP/1.0 200 OK\r\n\r\n {pod}\n"),
	}
	for name, h := range tests {
		t.Run(name, func(t *testing.T) {
			web := newWebServer(t, h)
			s := askOften(t, web.URL, func(c *HTTPConfig) {
				c.Load = func(file string, data []byte) (*manifests.Content, error) {
					if strings.TrimSpace(string(data)) != "{pod}" {
						return nil, fmt.Errorf("unexpected %q", data)
					}
					return &manifests.Content{Pods: []*manifests.Pod{watchertest.NewPod("j", "v1", manifests.Origin{Source: "http", File: file, Line: 1})}}, nil
				}
			})
			s.Until("j", func(set watcher.Set) bool { return len(set.Pods) == 1 })
		})
	}
}
