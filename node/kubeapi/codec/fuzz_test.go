package codec_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/internal/fuzztest"
	"monopod/node/kubeapi/codec"
	"monopod/node/kubeapi/kinds"
)

// FuzzBody: bodies of any kind are decoded or refused, at once.
func FuzzBody(f *testing.F) {
	for _, media := range []string{"", "application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "text/html", "application/json; charset=\xff", ";;;"} {
		for _, body := range []string{
			"", "{}", "null", "[]", `{"kind":"Pod"}`, `{"metadata":{"name":"a","name":"b"},"x":1}`, "k8s\x00", "k8s\x00\x0a\x09\x0a\x02v1\x12\x03Pod\x12\x02\x0a\x00",
			"k8s\x00\x12\xff\xff\xff\xff\x0f", "a: &a [*a]", "a: &a {b: *a}", "<<: {<<: {}}", strings.Repeat("[", 3000), strings.Repeat(`{"a":`, 3000), strings.Repeat("- ", 3000),
			strings.Repeat("k8s\x00\x12\x80", 300), `{"spec":{"overhead":{"cpu":1e-2147483648}}}`, `{"metadata":{"creationTimestamp":"9999-99-99T99:99:99Z"}}`,
			"spec: {containers: [{resources: {limits: {cpu: 1e2147483647}}}]}", "!!binary x: !!int \xff", "\xef\xbb\xbf{}", "{\"a\":\"\\ud800\"}", "%YAML 9.9\n---\n", "? [a]\n: b",
		} {
			f.Add(media, "Strict", []byte(body))
		}
	}
	f.Fuzz(func(t *testing.T, media, validation string, body []byte) {
		began := time.Now()
		for _, into := range []schema.GroupVersionKind{corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion.WithKind("ConfigMap"), metav1.SchemeGroupVersion.WithKind("DeleteOptions")} {
			o, warnings, err := codec.DecodeBytes(body, media, into, validation)
			switch {
			case err == nil && (o == nil || len(warnings) > 100):
				t.Errorf("%v, %d warnings", o, len(warnings))
			case err != nil:
				if s := codec.Status(err); s.Code < 400 || s.Code >= 500 && s.Code != http.StatusInternalServerError || len(s.Message) > 100<<10 {
					t.Errorf("%d: %.300s", s.Code, s.Message)
				}
			}
		}
		_, _ = codec.JSON(body)
		fuzztest.Soon(t, began, 20*time.Second)
	})
}

// FuzzAccept: any header gets a format that can write, or an error that can be written.
func FuzzAccept(f *testing.F) {
	for _, header := range []string{
		"", "*/*", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "application/vnd.kubernetes.protobuf;stream=watch", "a/b;q=NaN", "application/json;q=-1",
		strings.Repeat("a/b,", 10_000), "application/json;as=Table;as=Table", "application/json; q=\"1", "application/yaml;stream=watch", ",,,;;;===", "application/json;q=1e999", "\x00\xff",
	} {
		f.Add(header, "watch=true&includeObject=Object&pretty=1")
	}
	f.Fuzz(func(t *testing.T, header, query string) {
		began := time.Now()
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.URL.RawQuery = query
		r.Header["Accept"] = []string{header}
		k := kinds.ByKind(corev1.SchemeGroupVersion.WithKind("Pod"))
		w := httptest.NewRecorder()
		format, err := codec.Negotiate(r, k)
		if err != nil {
			codec.Fail(w, r, err)
		} else {
			err = format.List(w, k, []kinds.Object{&corev1.Pod{}}, 1)
		}
		if w.Body.Len() == 0 {
			t.Errorf("nothing is written: %v", err)
		}
		fuzztest.Soon(t, began, 20*time.Second)
	})
}
