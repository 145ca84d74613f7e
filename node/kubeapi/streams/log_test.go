package streams

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

func TestLogOptionsAreThoseOfTheAPI(t *testing.T) {
	for query, want := range map[string]string{
		"":                                      "",
		"container=app&pretty=true":             "",
		"follow=true&previous=1":                "follow=true&previous=true",
		"follow=false&timestamps=0":             "",
		"follow&timestamps":                     "follow=true&timestamps=true",
		"tailLines=0&limitBytes=1":              "limitBytes=1&tailLines=0",
		"sinceSeconds=60":                       "sinceSeconds=60",
		"sinceTime=":                            "",
		"stream=All&tailLines=5":                "tailLines=5",
		"stream=Stdout":                         "stream=Stdout",
		"insecureSkipTLSVerify=x&x=y":           "",
		"sinceTime=2026-01-01T01:00:00%2B01:00": "sinceTime=" + url.QueryEscape("2026-01-01T01:00:00+01:00"),
		"tailLines=":                            "400 tailLines",
		"limitBytes=1.5":                        "400 limitBytes",
		"sinceTime=yesterday":                   "400 sinceTime",
		"tailLines=-1":                          "422 tailLines",
		"limitBytes=0":                          "422 limitBytes",
		"sinceSeconds=-5":                       "422 sinceSeconds",
		"stream=Both":                           "422 stream",
		"stream=Stderr&tailLines=3":             "422 mutually exclusive",
		"sinceSeconds=5&sinceTime=2026-01-01T00:00:00Z": "422 at most one",
	} {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		to, err := logOptions("web", q)
		if err == nil {
			if to.Encode() != want {
				t.Errorf("%s: %s, want %s", query, to.Encode(), want)
			}
			continue
		}
		status := err.(apierrors.APIStatus).Status()
		code, text, _ := strings.Cut(want, " ")
		if fmt.Sprint(status.Code) != code || text == "" || !strings.Contains(status.Message, text) {
			t.Errorf("%s: %v, want %s", query, err, want)
		}
		if code == "422" && len(status.Details.Causes) == 0 {
			t.Errorf("%s: no causes", query)
		}
	}
}

// TestLogOptionsOfClientGo: what the typed client makes of options is understood.
func TestLogOptionsOfClientGo(t *testing.T) {
	m := newMachine(t, nil)
	since := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	for _, c := range []struct {
		options corev1.PodLogOptions
		want    string
	}{
		{corev1.PodLogOptions{}, "/containerLogs/default/web/app?"},
		{corev1.PodLogOptions{Container: "first", Previous: true, Timestamps: true, TailLines: new(int64(3)), LimitBytes: new(int64(9))}, "/containerLogs/default/web/first?limitBytes=9&previous=true&tailLines=3&timestamps=true"},
		{corev1.PodLogOptions{SinceTime: &since, Stream: new(corev1.LogStreamStderr), InsecureSkipTLSVerifyBackend: true}, "/containerLogs/default/web/app?sinceTime=2026-01-01T00%3A00%3A00Z&stream=Stderr"},
	} {
		q, err := scheme.ParameterCodec.EncodeParameters(runtime.Object(&c.options), corev1.SchemeGroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.Get(m.url + "/pods/web/log?" + q.Encode())
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if string(b) != c.want || res.StatusCode != http.StatusOK {
			t.Errorf("%d %s, want %s", res.StatusCode, b, c.want)
		}
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

// message returns the next message that is not empty.
func message(t *testing.T, ws *websocket.Conn) (string, error) {
	t.Helper()
	for {
		var b []byte
		if err := websocket.Message.Receive(ws, &b); err != nil || len(b) > 0 {
			return string(b), err
		}
	}
}

func TestLogsOverWebSocket(t *testing.T) {
	m := newMachine(t, nil)
	m.logs = func(w http.ResponseWriter, r *http.Request) {
		for i := range 3 {
			fmt.Fprintf(w, "line %d of %s\n", i, r.PathValue("container"))
			_ = http.NewResponseController(w).Flush()
		}
	}
	const want = "line 0 of app\nline 1 of app\nline 2 of app\n"
	for _, protocols := range [][]string{nil, {"binary.k8s.io"}, {"nonsense", "binary.k8s.io"}, {bearer + "x"}, {"base64.binary.k8s.io"}} {
		ws := m.webSocket("/pods/web/log?container=app", protocols...)
		all := ""
		for {
			text, err := message(t, ws)
			if err != nil {
				break
			}
			if len(protocols) == 1 && protocols[0] == protocolBase64 {
				b, err := base64.StdEncoding.DecodeString(text)
				if err != nil {
					t.Error(err)
				}
				text = string(b)
			}
			all += text
		}
		if all != want {
			t.Errorf("%v: %q", protocols, all)
		}
		_ = ws.Close()
	}
	if ws, err := m.tryWebSocket("/pods/web/log", "v4.channel.k8s.io"); err == nil {
		_ = ws.Close()
		t.Error("a protocol for commands carries a log")
	}
}

func TestALogThatSaysNothingIsConnectedAndEndsWithItsClient(t *testing.T) {
	m := newMachine(t, nil)
	m.handler.silence = time.Millisecond
	m.logs = func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		m.ended <- "log"
	}
	ws := m.webSocket("/pods/web/log?follow=true")
	_ = ws.Close()
	m.wantEnded("log")
}

func TestALogThatNobodyTakesEndsWithItsClient(t *testing.T) {
	m := newMachine(t, nil)
	m.logs = func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := w.Write(make([]byte, 1<<16)); err != nil {
				m.ended <- "flood"
				return
			}
		}
	}
	ws := m.webSocket("/pods/web/log?follow=true")
	if _, err := message(t, ws); err != nil {
		t.Error(err)
	}
	_ = ws.Close()
	m.wantEnded("flood")
}

func TestErrorsOfLogsComeBeforeTheUpgrade(t *testing.T) {
	m := newMachine(t, nil)
	m.logs = func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, `container "app" in pod "web" is waiting to start: ContainerCreating`, http.StatusBadRequest)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, m.url+"/pods/web/log", nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Origin": m.url,
	} {
		r.Header.Set(name, value)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	res, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	if s := status(t, res); s.Code != 400 || !strings.Contains(s.Message, "ContainerCreating") {
		t.Errorf("%+v", s)
	}
}
