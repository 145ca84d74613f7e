package codec_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"monopod/node/kubeapi/codec"
	"monopod/node/kubeapi/kinds"
)

func bookmark() *corev1.Pod {
	p := pods().New().(*corev1.Pod)
	p.ResourceVersion, p.Annotations = "9", map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	return p
}

func events() []watch.Event {
	gone := apierrors.NewResourceExpired("too old").ErrStatus
	return []watch.Event{
		{Type: watch.Added, Object: pod("web")},
		{Type: watch.Modified, Object: pod("web")},
		{Type: watch.Bookmark, Object: bookmark()},
		{Type: watch.Deleted, Object: pod("web")},
		{Type: watch.Error, Object: &gone},
	}
}

// serveEvents answers a watch with all events, and other requests with a list.
func serveEvents(w http.ResponseWriter, r *http.Request) {
	f, err := codec.Negotiate(r, pods())
	if err != nil {
		codec.Fail(w, r, err)
		return
	}
	if r.URL.Query().Get("watch") == "" {
		if err := f.List(w, pods(), []kinds.Object{pod("web")}, 5); err != nil {
			codec.Fail(w, r, err)
		}
		return
	}
	s := f.Watch(w)
	for _, e := range events() {
		if s.Send(e.Type, e.Object) != nil {
			return
		}
	}
}

func TestClientsWatchInBothEncodings(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(serveEvents))
	t.Cleanup(s.Close)
	for _, media := range []string{"application/json", protobuf} {
		c, err := rest.RESTClientFor(&rest.Config{Host: s.URL, APIPath: "/api", ContentConfig: rest.ContentConfig{
			GroupVersion: &corev1.SchemeGroupVersion, NegotiatedSerializer: kinds.Codecs().WithoutConversion(), AcceptContentTypes: media, ContentType: media,
		}})
		if err != nil {
			t.Fatal(err)
		}
		var list corev1.PodList
		if err := c.Get().Resource("pods").Do(context.Background()).Into(&list); err != nil || len(list.Items) != 1 || list.ResourceVersion != "5" {
			t.Errorf("%s: %v, %+v", media, err, list)
		}
		w, err := c.Get().Resource("pods").Param("watch", "true").Watch(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range events() {
			got, ok := <-w.ResultChan()
			if !ok || got.Type != want.Type {
				t.Fatalf("%s: %+v, want %s", media, got, want.Type)
			}
			switch o := got.Object.(type) {
			case *corev1.Pod:
				if want := want.Object.(*corev1.Pod); o.Name != want.Name || o.ResourceVersion != want.ResourceVersion || len(o.Annotations) != len(want.Annotations) {
					t.Errorf("%s: %+v", media, o)
				}
			case *metav1.Status:
				if o.Reason != metav1.StatusReasonExpired || o.Code != http.StatusGone {
					t.Errorf("%s: %+v", media, o)
				}
			}
		}
		w.Stop()
		for range w.ResultChan() { // until it is closed
			continue
		}
	}
}

func TestTheHeaderOfAWatch(t *testing.T) {
	for accept, want := range map[string]string{"": "application/json", protobuf: protobuf + ";stream=watch", protobuf + ";stream=watch": protobuf + ";stream=watch"} {
		w := httptest.NewRecorder()
		negotiate(t, get("/?watch=1", accept, "Accept-Encoding", "gzip"), pods()).Watch(w)
		if w.Code != 200 || w.Header().Get("Content-Type") != want || !w.Flushed || w.Header().Get("Content-Encoding") != "" {
			t.Errorf("%s: %d %v", accept, w.Code, w.Header())
		}
	}
}

func TestOnlyTheFirstEventOfATableHasColumns(t *testing.T) {
	w := httptest.NewRecorder()
	s := negotiate(t, get("/?watch=1&includeObject=None&pretty=true", asTable), pods()).Watch(w)
	for _, e := range events() {
		if err := s.Send(e.Type, e.Object); err != nil {
			t.Fatal(err)
		}
	}
	lines := strings.Split(strings.TrimSpace(w.Body.String()), "\n") // clients in Python split at line ends
	if len(lines) != 5 {
		t.Fatalf("%d lines: %s", len(lines), w.Body)
	}
	for i, line := range lines {
		var e struct {
			Type   string
			Object metav1.Table
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err, line)
		}
		want := "Table"
		if i == 4 {
			want = "Status"
		}
		if e.Object.Kind != want || (len(e.Object.ColumnDefinitions) > 0) != (i == 0) {
			t.Errorf("%d: %s", i, line)
		}
		if hasObject := strings.Contains(line, metav1.InitialEventsAnnotationKey); hasObject != (i == 2) {
			t.Errorf("%d: the bookmark that ends the first events must be found: %s", i, line)
		}
	}
}

func TestAMetadataWatchHasNoSpec(t *testing.T) {
	w := httptest.NewRecorder()
	s := negotiate(t, get("/?watch=1", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"), pods()).Watch(w)
	if err := s.Send(watch.Added, pod("web")); err != nil || strings.Contains(w.Body.String(), "nginx") || !strings.Contains(w.Body.String(), `"object":{"kind":"PartialObjectMetadata"`) {
		t.Errorf("%v: %s", err, w.Body)
	}
}

// gone is a client that has closed its connection.
type gone struct{ *httptest.ResponseRecorder }

func (gone) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestAWatchEndsWithItsClient(t *testing.T) {
	s := negotiate(t, get("/?watch=1", ""), pods()).Watch(gone{httptest.NewRecorder()})
	if s.Send(watch.Added, pod("web")) == nil {
		t.Error("no error")
	}
	s = negotiate(t, get("/?watch=1", ""), pods()).Watch(httptest.NewRecorder())
	if err := s.Send(watch.Added, &unknown{}); err == nil {
		t.Error("no error for an object of no kind")
	}
}

type unknown struct{ metav1.TypeMeta }

func (u *unknown) DeepCopyObject() runtime.Object { return u }

func BenchmarkWatch(b *testing.B) {
	for _, media := range []string{"application/json", protobuf} {
		b.Run(media, func(b *testing.B) {
			b.ReportAllocs()
			s := negotiate(b, get("/?watch=1", media), pods()).Watch(discard{http.Header{}})
			for b.Loop() {
				_ = s.Send(watch.Modified, pod("web"))
			}
		})
	}
}
