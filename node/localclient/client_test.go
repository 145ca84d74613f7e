package localclient_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/internal/streams"
	"monopod/manifests"
	"monopod/node/events"
	"monopod/node/localapi"
	"monopod/node/localclient"
)

// serve starts a server on a socket, which ends with the test, and returns its client.
func serve(t *testing.T, h http.HandlerFunc) *localclient.Client {
	t.Helper()
	dir, err := os.MkdirTemp("", "s") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}}
	s.Start()
	t.Cleanup(s.Close)
	return localclient.New(l.Addr().String())
}

// answer returns a handler that answers with these parts, one by one.
func answer(parts ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for _, p := range parts {
			fmt.Fprint(w, p)
			_ = http.NewResponseController(w).Flush()
		}
	}
}

func TestEachMethodHasItsRequest(t *testing.T) {
	var asked, reply string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked = strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Method, r.URL.RequestURI(), body))
		fmt.Fprint(w, reply)
	})
	ctx := t.Context()
	ten := int32(10)
	files := []localapi.ManifestFile{{Name: "a.yaml", Content: []byte("x")}}
	for _, tt := range []struct {
		call         func() (any, error)
		asked, reply string
	}{
		{func() (any, error) { return c.Pods(ctx, "") }, "GET /apis/monopod.dev/v1alpha1/podreports", `{"items":[{"metadata":{"name":"web"}}]}`},
		{func() (any, error) { return c.Pods(ctx, "a&b") }, "GET /apis/monopod.dev/v1alpha1/namespaces/a&b/podreports", `{"items":[]}`},
		{func() (any, error) { return c.Pod(ctx, "shop", "web") }, "GET /apis/monopod.dev/v1alpha1/namespaces/shop/podreports/web", `{"metadata":{"name":"web"}}`},
		{func() (any, error) { return c.Pod(ctx, "shop", "../x") }, "GET /apis/monopod.dev/v1alpha1/namespaces/shop/podreports/..%2Fx", `{"metadata":{"name":"../x"}}`},
		{func() (any, error) { return c.Inputs(ctx) }, "GET /apis/monopod.dev/v1alpha1/agents/self/sources", `[{"source":"file","input":"/m/a.yaml","state":"Accepted","since":"2026-01-02T03:00:00Z"}]`},
		{func() (any, error) { return c.Agent(ctx) }, "GET /apis/monopod.dev/v1alpha1/agents/self/costs", `{"pid":7,"version":"v1"}`},
		{func() (any, error) { return c.Usage(ctx) }, "GET /stats/summary?only_cpu_and_memory=true", `{"node":{"nodeName":"n"}}`},
		{func() (any, error) { return c.Why(ctx, "shop", "") }, "GET /apis/monopod.dev/v1alpha1/agents/self/why?namespace=shop", `{"text":"all is fine","fine":true,"chains":[]}`},
		{func() (any, error) { return c.Why(ctx, "shop", "web") }, "GET /apis/monopod.dev/v1alpha1/namespaces/shop/podreports/web/why", `{"text":"fine","fine":true,"chains":[]}`},
		{func() (any, error) {
			items, err := c.Objects(ctx, localapi.ObjectQuery{Kind: "Job", Name: "j"})
			return map[string]any{"items": items}, err
		}, "GET /apis/monopod.dev/v1alpha1/agents/self/documents?kind=Job&name=j&namespace=", `{"items":[{"kind":"Job"}]}`},
		{func() (any, error) { return c.Events(ctx, events.Filter{Kind: "Pod", Name: "web"}) }, "GET /apis/monopod.dev/v1alpha1/agents/self/events?kind=Pod&name=web", `{"items":[{"reason":"Started"}]}`},
		{func() (any, error) { return c.History(ctx, "shop", "web") }, "GET /apis/monopod.dev/v1alpha1/namespaces/shop/podreports/web/history", `{"namespace":"shop","name":"web","active":2}`},
		{func() (any, error) { return c.Rollback(ctx, "shop", "web", 3) }, `POST /apis/monopod.dev/v1alpha1/namespaces/shop/podreports/web/rollback {"to":3}`, `{"active":3}`},
		{func() (any, error) { return c.Schedule(ctx) }, "GET /apis/monopod.dev/v1alpha1/agents/self/drain", `{"cordoned":true}`},
		{func() (any, error) { return c.Cordon(ctx, localapi.DrainRequest{UntilBoot: true}) }, `PUT /apis/monopod.dev/v1alpha1/agents/self/cordon {"untilBoot":true}`, `{"cordoned":true}`},
		{func() (any, error) { return c.Drain(ctx, localapi.DrainRequest{PriorityBelow: &ten}) }, `PUT /apis/monopod.dev/v1alpha1/agents/self/drain {"priorityBelow":10}`, `{"drained":true}`},
		{func() (any, error) { return c.Undrain(ctx) }, "DELETE /apis/monopod.dev/v1alpha1/agents/self/drain {}", `{"drained":false}`},
		{func() (any, error) { return c.Apply(ctx, localapi.ApplyRequest{Files: files, DryRun: true}) }, `PUT /apis/monopod.dev/v1alpha1/agents/self/applied {"files":[{"name":"a.yaml","content":"eA=="}],"dryRun":true}`, `{"objects":[{"kind":"Pod","name":"web","verdict":"created"}]}`},
		{func() (any, error) {
			return c.Delete(ctx, localapi.DeleteRequest{Objects: []localapi.ObjectRef{{Kind: "Pod", Namespace: "shop", Name: "web"}}})
		}, `DELETE /apis/monopod.dev/v1alpha1/agents/self/applied {"objects":[{"kind":"Pod","namespace":"shop","name":"web"}]}`, `{"notes":["n"]}`},
		{func() (any, error) { return c.Images(ctx) }, "GET /apis/monopod.dev/v1alpha1/agents/self/images", `{"items":[{"digest":"sha256:1"}]}`},
		{func() (any, error) {
			return c.RemoveImages(ctx, localapi.ImageRemoval{Images: []string{"a"}, Force: true})
		}, `DELETE /apis/monopod.dev/v1alpha1/agents/self/images {"images":["a"],"force":true}`, `{"images":[{"image":"a","error":"used"}]}`},
		{func() (any, error) { return c.Pulls(ctx, []string{"a", "b"}) }, "GET /apis/monopod.dev/v1alpha1/agents/self/pulls?image=a&image=b", `[{"image":"a","done":1,"total":2}]`},
		{func() (any, error) { return nil, c.Live(ctx) }, "GET /livez", `null`},
	} {
		asked, reply = "", tt.reply
		got, err := tt.call()
		if err != nil || asked != tt.asked {
			t.Errorf("asked %s, want %s: %v", asked, tt.asked, err)
			continue
		}
		// The result must have all of the answer.
		b, err := json.Marshal(got)
		if err != nil || !contains(t, b, []byte(tt.reply)) {
			t.Errorf("%s: %s became %s: %v", asked, tt.reply, b, err)
		}
	}
}

// contains reports whether a JSON value has all fields of another one.
func contains(t *testing.T, all, part []byte) bool {
	t.Helper()
	var a, p any
	if err := json.Unmarshal(all, &a); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(part, &p); err != nil {
		t.Fatal(err)
	}
	return includes(a, p)
}

func includes(all, part any) bool {
	switch p := part.(type) {
	case map[string]any:
		a, ok := all.(map[string]any)
		for k, v := range p {
			ok = ok && (includes(a[k], v) || a[k] == nil && v == false) // false may be omitted
		}
		return ok
	case []any:
		a, _ := all.([]any)
		ok := len(a) == len(p)
		for i := range p {
			ok = ok && includes(a[i], p[i])
		}
		return ok
	}
	return all == part
}

func TestStreamsEndWithTheDaemon(t *testing.T) {
	var asked string
	var reply []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.RequestURI()
		answer(reply...)(w, r)
	})
	ctx := t.Context()
	pods := func(got *[]string) func(localclient.PodEvent) error {
		return func(e localclient.PodEvent) error {
			*got = append(*got, e.Type+" "+e.Object.Name)
			return nil
		}
	}
	pod := func(kind, name string) string {
		return fmt.Sprintf(`{"type":%q,"object":{"metadata":{"name":%q}}}`, kind, name)
	}
	for _, tt := range []struct {
		name, asked string
		reply       []string
		call        func(got *[]string) error
		want        string
	}{
		{"pods", "/apis/monopod.dev/v1alpha1/namespaces/shop/podreports?fieldSelector=metadata.name%3Dweb&watch=true", []string{pod("ADDED", "web"), "\n" + pod("DELETED", "web")}, func(got *[]string) error {
			return c.Watch(ctx, "shop", "web", pods(got))
		}, "ADDED web, DELETED web"},
		{"all pods", "/apis/monopod.dev/v1alpha1/podreports?sendInitialEvents=true&watch=true", []string{pod(localapi.Bookmark, "")}, func(got *[]string) error {
			return c.WatchAll(ctx, pods(got))
		}, "BOOKMARK "},
		{"cut off", "/apis/monopod.dev/v1alpha1/podreports?sendInitialEvents=true&watch=true", []string{pod("ADDED", "web") + `{"type":"MOD`}, func(got *[]string) error {
			return c.WatchAll(ctx, pods(got))
		}, "ADDED web"},
		{"events", "/apis/monopod.dev/v1alpha1/agents/self/events?namespace=shop&watch=true", []string{`{"type":"ADDED","object":{"reason":"Started"}}`}, func(got *[]string) error {
			return c.WatchEvents(ctx, events.Filter{Namespace: "shop"}, func(e localapi.EventChange) error {
				*got = append(*got, e.Type+" "+e.Object.Reason)
				return nil
			})
		}, "ADDED Started"},
		{"the schedule", "/apis/monopod.dev/v1alpha1/agents/self/drain?watch=true", []string{`{"object":{"drained":true}}`, `{"object":{}}`}, func(got *[]string) error {
			return c.WatchSchedule(ctx, func(s localapi.Schedule) error {
				*got = append(*got, fmt.Sprint(s.Drained))
				return nil
			})
		}, "true, false"},
	} {
		reply = tt.reply
		var got []string
		if err := tt.call(&got); !errors.Is(err, localclient.ErrEnded) {
			t.Errorf("%s: ended with %v", tt.name, err)
		}
		if all := strings.Join(got, ", "); asked != tt.asked || all != tt.want {
			t.Errorf("%s: asked %s, got %q, want %q", tt.name, asked, all, tt.want)
		}
	}
}

func TestStreamEndsWithItsReceiver(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		answer(`{"type":"ADDED"}{"type":"ADDED"}`)(w, r)
		<-r.Context().Done()
	})
	enough := errors.New("enough")
	if err := c.WatchAll(t.Context(), func(localclient.PodEvent) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("%v, want the error of the receiver", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := 0
	if err := c.WatchAll(ctx, func(localclient.PodEvent) error {
		if n++; n == 2 {
			cancel()
		}
		return nil
	}); err != nil || n != 2 {
		t.Errorf("after %d events: %v", n, err)
	}
	bad := serve(t, answer("{]"))
	if err := bad.WatchAll(t.Context(), func(localclient.PodEvent) error { return nil }); err == nil || !strings.HasPrefix(err.Error(), "read events: ") {
		t.Errorf("no JSON: %v", err)
	}
}

func TestPullEndsWithItsLastImage(t *testing.T) {
	var reply []string
	asked := ""
	requests := make(chan string, 1)
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		requests <- r.Method + " " + r.URL.RequestURI() + " " + string(body)
		answer(reply...)(w, r)
		if strings.Contains(string(body), "hang") {
			<-r.Context().Done()
		}
	})
	pull := func(images ...string) (string, error) {
		var got []string
		err := c.Pull(t.Context(), localapi.PullRequest{Images: images, IfNotPresent: true}, func(e localapi.PullEvent) error {
			if e.State == "Bad" {
				return errors.New("of the receiver")
			}
			got = append(got, e.Image+" "+e.State)
			return nil
		})
		asked = <-requests
		return strings.Join(got, ", "), err
	}
	reply = []string{`{"image":"a","state":"Pulling","done":1}`, `{"image":"hang","state":"Failed"}`, `{"image":"a","state":"Pulled"}`}
	if got, err := pull("a", "hang"); err != nil || got != "a Pulling, hang Failed, a Pulled" || asked != `POST /apis/monopod.dev/v1alpha1/agents/self/pulls {"images":["a","hang"],"ifNotPresent":true}` {
		t.Errorf("%s: %q, %v", asked, got, err)
	}
	if got, err := pull("a", "b"); !errors.Is(err, localclient.ErrEnded) || got == "" {
		t.Errorf("an image is missing at the end: %q, %v", got, err)
	}
	reply = []string{`{"image":"a","state":"Bad"}`}
	if _, err := pull("a"); err == nil || err.Error() != "of the receiver" {
		t.Errorf("%v", err)
	}
	reply = []string{"{]"}
	if _, err := pull("a"); err == nil || !strings.HasPrefix(err.Error(), "read the progress: ") {
		t.Errorf("no JSON: %v", err)
	}
}

func TestErrorsOfTheDaemon(t *testing.T) {
	var status int
	var reply string
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		fmt.Fprint(w, reply)
	})
	status, reply = http.StatusNotFound, `{"kind":"Status","status":"Failure","message":"no such path","reason":"NotFound","code":404}`
	if _, err := c.Pod(t.Context(), "shop", "web"); apierrors.IsNotFound(err) || err == nil || !strings.HasPrefix(err.Error(), "the running monopod is older than this command") {
		t.Errorf("an older daemon: %v", err)
	}
	reply = `{"kind":"Status","status":"Failure","message":"no pod web","reason":"NotFound","code":404,"details":{"group":"monopod.dev"}}`
	if _, err := c.Pod(t.Context(), "shop", "web"); !apierrors.IsNotFound(err) || err.Error() != "no pod web" {
		t.Errorf("its Status: %v", err)
	}
	for _, tt := range []struct {
		status      int
		reply, want string
	}{
		{http.StatusBadGateway, " <html>\n", "answer to /apis/monopod.dev/v1alpha1/namespaces/shop/podreports/web: 502 Bad Gateway: <html>"},
		{http.StatusTeapot, `{"kind":"Pod"}`, `answer to /apis/monopod.dev/v1alpha1/namespaces/shop/podreports/web: 418 I'm a teapot: {"kind":"Pod"}`},
		{http.StatusBadGateway, strings.Repeat("x", 5000), "answer to /apis/monopod.dev/v1alpha1/namespaces/shop/podreports/web: 502 Bad Gateway: " + strings.Repeat("x", 1024) + "..."},
		{http.StatusOK, `[]`, "answer to /apis/monopod.dev/v1alpha1/namespaces/shop/podreports/web: json: cannot unmarshal array into Go value of type v1.Pod"},
		{http.StatusOK, `{"metadata":`, "answer to /apis/monopod.dev/v1alpha1/namespaces/shop/podreports/web: unexpected EOF"},
	} {
		status, reply = tt.status, tt.reply
		_, err := c.Pod(t.Context(), "shop", "web")
		if foreign, ok := errors.AsType[*localclient.AnswerError](err); !ok || foreign.Path != "/apis/monopod.dev/v1alpha1/namespaces/shop/podreports/web" || err.Error() != tt.want {
			t.Errorf("%d %.20s: %v", tt.status, tt.reply, err)
		}
	}
}

func TestErrorsOfTheSocket(t *testing.T) {
	dir := t.TempDir()
	missing := localclient.New(filepath.Join(dir, "s"))
	_, err := missing.Agent(t.Context())
	if !errors.Is(err, fs.ErrNotExist) || err.Error() != dir+"/s does not exist; is monopod running? Start it with `monopod run`, or set its socket with --socket or MONOPOD_SOCKET" {
		t.Errorf("no socket: %v", err)
	}
	if err := missing.Live(t.Context()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no socket: %v", err)
	}
	for _, tt := range []struct {
		err         error
		cause, text string
	}{
		{syscall.EACCES, "/s: permission denied", "/s: permission denied; only root may use monopod, try sudo"},
		{syscall.ENOENT, "/s does not exist", "/s does not exist; is monopod running? Start it with `monopod run`, or set its socket with --socket or MONOPOD_SOCKET"},
		{syscall.ECONNREFUSED, "no daemon answers on /s (connection refused)", "no daemon answers on /s (connection refused); is monopod running? Start it with `monopod run`"},
	} {
		e := &localclient.ConnectError{Socket: "/s", Err: tt.err}
		if e.Cause() != tt.cause || e.Error() != tt.text || !errors.Is(e, tt.err) {
			t.Errorf("%s: %s", e.Cause(), e)
		}
	}
}

func TestWarningsOfAnswers(t *testing.T) {
	var header string
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Warning", header)
		fmt.Fprint(w, "{}")
	})
	for sent, want := range map[string]string{
		`199 monopod "containers cannot be seen"`: "containers cannot be seen",
		`199 monopod "a \"quoted\" word"`:         `a "quoted" word`,
		`199 monopod unquoted`:                    "",
		`199`:                                     "",
		``:                                        "",
	} {
		header, c.OnWarning = sent, nil
		if _, err := c.Pods(t.Context(), ""); err != nil {
			t.Errorf("without a receiver: %v", err)
		}
		got := ""
		c.OnWarning = func(text string) { got += text }
		if _, err := c.Pods(t.Context(), ""); err != nil || got != want {
			t.Errorf("%s: %q, want %q: %v", sent, got, want, err)
		}
	}
}

func TestLogsAreStreamed(t *testing.T) {
	var asked string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.RequestURI()
		answer("one\n", "two\n")(w, r)
	})
	for _, follow := range []string{"", "true"} {
		body, err := c.Log(t.Context(), "shop", "web", url.Values{"container": {"a"}, "follow": {follow}})
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(body)
		if string(b) != "one\ntwo\n" || err != nil || body.Close() != nil || asked != "/api/v1/namespaces/shop/pods/web/log?container=a&follow="+follow {
			t.Errorf("%s: %q, %v", asked, b, err)
		}
	}
}

var place = localclient.FilePlace{Pod: manifests.Key{Namespace: "shop", Name: "web"}, Container: "a", Path: "/srv/x y"}

func TestFilesAreRead(t *testing.T) {
	var trailer, asked string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.RequestURI()
		w.Header().Set("Trailer", localapi.TrailerError+", "+localapi.TrailerWarning)
		fmt.Fprint(w, "a stream of tar and what is behind it")
		w.Header().Set(localapi.TrailerError, trailer)
		w.Header().Add(localapi.TrailerWarning, "a socket was omitted")
		w.Header().Add(localapi.TrailerWarning, "so was a device")
	})
	read := func(from io.Reader) error {
		b := make([]byte, 15)
		if _, err := io.ReadFull(from, b); err != nil || string(b) != "a stream of tar" {
			t.Errorf("%q, %v", b, err)
		}
		return nil
	}
	warnings, err := c.ReadFiles(t.Context(), place, read)
	if err != nil || strings.Join(warnings, ", ") != "a socket was omitted, so was a device" {
		t.Errorf("warnings %q, %v", warnings, err)
	}
	if want := "/apis/monopod.dev/v1alpha1/namespaces/shop/podreports/web/files?container=a&path=%2Fsrv%2Fx+y"; asked != want {
		t.Errorf("asked %s, want %s", asked, want)
	}
	trailer = "the disk is broken"
	if _, err := c.ReadFiles(t.Context(), place, read); err == nil || err.Error() != trailer {
		t.Errorf("its error: %v", err)
	}
	failed := errors.New("no room here")
	if _, err := c.ReadFiles(t.Context(), place, func(io.Reader) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("the error of the receiver: %v", err)
	}
	missing := localclient.New(filepath.Join(t.TempDir(), "s"))
	if _, err := missing.ReadFiles(t.Context(), place, read); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a daemon: %v", err)
	}
}

func TestFilesAreWritten(t *testing.T) {
	var asked string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked = r.Method + " " + r.URL.RequestURI() + " " + r.Header.Get("Content-Type") + " " + string(body)
		fmt.Fprint(w, `{"warnings":["w"]}`)
	})
	for name, query := range map[string]string{"": "container=a&path=%2Fsrv%2Fx+y", "n": "container=a&name=n&path=%2Fsrv%2Fx+y"} {
		written, err := c.WriteFiles(t.Context(), place, name, strings.NewReader("tar"))
		if want := "PUT /apis/monopod.dev/v1alpha1/namespaces/shop/podreports/web/files?" + query + " application/x-tar tar"; err != nil || asked != want || len(written.Warnings) != 1 {
			t.Errorf("asked %s, want %s: %+v, %v", asked, want, written, err)
		}
	}
}

func TestAnswersAreBounded(t *testing.T) {
	c := serve(t, answer(`{"items":[`+strings.Repeat(`{"metadata":{"name":"web"}},`, 100)+`{}]}`))
	c.Limits.Answer = 1000
	_, err := c.Pods(t.Context(), "")
	if _, ok := errors.AsType[*localclient.AnswerError](err); !ok || err.Error() != "answer to /apis/monopod.dev/v1alpha1/podreports: it is too long" {
		t.Errorf("%v", err)
	}
	c.Limits.Answer = 10000
	if list, err := c.Pods(t.Context(), ""); err != nil || len(list.Items) != 101 {
		t.Errorf("%v", err)
	}
	// Each object of a stream may have the whole limit.
	stream := serve(t, answer(strings.Repeat(`{"type":"`+strings.Repeat("A", 600)+`"}`, 5)+`{"type":"`+strings.Repeat("B", 3000)+`"}`))
	stream.Limits.Object = 1000
	n := 0
	err = stream.WatchAll(t.Context(), func(localclient.PodEvent) error { n++; return nil })
	if n != 5 || err == nil || err.Error() != "read events: it is too long" {
		t.Errorf("after %d objects: %v", n, err)
	}
}

func TestDaemonThatHangs(t *testing.T) {
	var first atomic.Pointer[string]
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if text := first.Load(); text != nil {
			answer(*text)(w, r)
		}
		<-r.Context().Done()
	})
	c.Limits.Request = 5 * time.Millisecond
	late := func(what string, err error) {
		t.Helper()
		if e, ok := errors.AsType[*localclient.TimeoutError](err); !ok || e.After != c.Limits.Request || !strings.Contains(err.Error(), "did not answer on "+e.Socket+" within "+e.After.String()) {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := c.Pods(t.Context(), "")
	late("no answer", err)
	late("no stream", c.WatchAll(t.Context(), func(localclient.PodEvent) error { return nil }))
	_, err = c.ReadFiles(t.Context(), place, func(io.Reader) error { return nil })
	late("no files", err)
	first.Store(new(`{"items":[`))
	_, err = c.Pods(t.Context(), "")
	late("half an answer", err)
	var body io.ReadCloser
	inTime(t, c, func() (err error) {
		body, err = c.Log(t.Context(), "shop", "web", nil)
		return err
	})
	defer body.Close()
	_, err = io.ReadAll(body)
	late("a log that stops in the middle", err)
}

// inTime calls do with limits that grow until the machine is fast enough for them.
func inTime(t *testing.T, c *localclient.Client, do func() error) {
	t.Helper()
	for ; ; c.Limits.Request *= 2 {
		err := do()
		if err == nil {
			return
		}
		if _, late := errors.AsType[*localclient.TimeoutError](err); !late || c.Limits.Request > time.Minute {
			t.Fatal(err)
		}
	}
}

// A stream may be silent for any time once it has begun.
func TestSilentStreamIsNotCutOff(t *testing.T) {
	more := make(chan struct{})
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		answer(`{"type":"ADDED"}`)(w, r)
		select {
		case <-more:
			answer(`{"type":"DELETED"}`)(w, r)
		case <-r.Context().Done():
		}
	})
	c.Limits.Request = 5 * time.Millisecond
	inTime(t, c, func() error {
		var got []string
		err := c.WatchAll(t.Context(), func(e localclient.PodEvent) error {
			if got = append(got, e.Type); len(got) == 1 {
				time.AfterFunc(3*c.Limits.Request, func() { more <- struct{}{} })
			}
			return nil
		})
		if errors.Is(err, localclient.ErrEnded) && strings.Join(got, " ") == "ADDED DELETED" {
			return nil
		}
		return err
	})
}

func TestStreamsOfPodsUseTheSocket(t *testing.T) {
	missing := localclient.New(filepath.Join(t.TempDir(), "s")).Streams()
	_, err := missing.Exec(t.Context(), place.Pod, "a", []string{"true"}, streams.Streams{})
	if e, ok := errors.AsType[*localclient.ConnectError](err); !ok || !errors.Is(e, fs.ErrNotExist) {
		t.Errorf("without a daemon: %v", err)
	}
	asked := ""
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.Path
		w.WriteHeader(http.StatusNotFound)
	})
	if _, err := c.Streams().Exec(t.Context(), place.Pod, "a", []string{"true"}, streams.Streams{}); err == nil || asked != "/api/v1/namespaces/shop/pods/web/exec" {
		t.Errorf("asked %s: %v", asked, err)
	}
}

func TestDefaultLimitsAreSet(t *testing.T) {
	if d := localclient.New("/s").Limits; d != localclient.DefaultLimits() || d.Request <= 0 || d.Object <= 0 || d.Answer < d.Object {
		t.Errorf("limits %+v", d)
	}
}
