package codec_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"monopod/node/kubeapi/codec"
	"monopod/node/kubeapi/kinds"
)

var (
	podKind   = corev1.SchemeGroupVersion.WithKind("Pod")
	mapKind   = corev1.SchemeGroupVersion.WithKind("ConfigMap")
	deleteGVK = schema.GroupVersionKind{Version: "v1", Kind: "DeleteOptions"}
)

func post(contentType string, body io.Reader) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/", body)
	r.Header.Set("Content-Type", contentType)
	return r
}

// encode encodes an object as clients do.
func encode(t testing.TB, media string, o kruntime.Object) []byte {
	t.Helper()
	info, _ := kruntime.SerializerInfoForMediaType(kinds.Codecs().SupportedMediaTypes(), media)
	var b bytes.Buffer
	if err := info.Serializer.Encode(o, &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestBodiesOfClientsAreDecoded(t *testing.T) {
	for _, media := range []string{"application/json", "application/yaml", protobuf} {
		for _, stated := range []bool{true, false} {
			p := pod("web")
			if stated {
				p.SetGroupVersionKind(podKind)
			}
			got, warnings, err := codec.Decode(httptest.NewRecorder(), post(media+"; charset=utf-8", bytes.NewReader(encode(t, media, p))), podKind, "Strict")
			p.SetGroupVersionKind(podKind)
			if err != nil || len(warnings) > 0 || !equality.Semantic.DeepEqual(got, p) {
				t.Errorf("%s: %v, %v\n%+v", media, err, warnings, got)
			}
		}
	}
	if _, _, err := codec.Decode(httptest.NewRecorder(), post("", strings.NewReader(`{"kind":"Pod"}`)), podKind, ""); err != nil {
		t.Errorf("no content type is JSON: %v", err)
	}
}

func TestOptionsOfDeletesHaveAnyGroup(t *testing.T) {
	seconds := int64(3)
	for _, version := range []string{"", "v1", "apps/v1", "meta.k8s.io/v1", "policy/v1"} {
		for _, media := range []string{"application/json", "application/yaml", protobuf} {
			o := &metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: "DeleteOptions"}, GracePeriodSeconds: &seconds}
			got, _, err := codec.DecodeBytes(encode(t, media, o), media, deleteGVK, "Ignore")
			if err != nil || *got.(*metav1.DeleteOptions).GracePeriodSeconds != 3 {
				t.Errorf("%s as %s: %v", version, media, err)
			}
		}
	}
}

func TestUnknownFieldsAreHandledAsAskedFor(t *testing.T) {
	const body = `{"kind":"Pod","spec":{"x":1,"nodeName":"a","nodeName":"b"},"y":[{"z":{}}]}`
	for validation, want := range map[string][]string{
		"Ignore": nil, "Warn": {`unknown field "spec.x"`, `duplicate field "spec.nodeName"`, `unknown field "y"`},
		"": {`unknown field "spec.x"`, `duplicate field "spec.nodeName"`, `unknown field "y"`},
	} {
		o, warnings, err := codec.DecodeBytes([]byte(body), "application/json", podKind, validation)
		if err != nil || fmt.Sprint(warnings) != fmt.Sprint(want) || o.(*corev1.Pod).Spec.NodeName != "b" {
			t.Errorf("%s: %v, %q", validation, err, warnings)
		}
	}
	_, _, err := codec.DecodeBytes([]byte(body), "application/json", podKind, "Strict")
	const want = `Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field "spec.x", duplicate field "spec.nodeName", unknown field "y"`
	if !apierrors.IsBadRequest(err) || err.Error() != want {
		t.Errorf("%v", err)
	}
	_, warnings, err := codec.DecodeBytes([]byte("kind: Pod\nspec:\n  nodeName: a\n  nodeName: b\n  x: 1\n"), "application/yaml", podKind, "Warn")
	if err != nil || len(warnings) != 2 || !strings.Contains(warnings[0], `key "nodeName" already set`) || warnings[1] != `unknown field "spec.x"` {
		t.Errorf("%v, %q", err, warnings)
	}
	many := `{"kind":"Pod"` + strings.Repeat(`,"x":1`, 1) + manyFields(500) + `}`
	if _, warnings, err := codec.DecodeBytes([]byte(many), "", podKind, "Warn"); err != nil || len(warnings) > 30 {
		t.Errorf("%d warnings, %v", len(warnings), err)
	}
}

func manyFields(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"f%d":1`, i)
	}
	return b.String()
}

func TestBodiesThatAreRefused(t *testing.T) {
	deployment := encode(t, protobuf, &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}})
	for name, c := range map[string]struct {
		media, body string
		into        schema.GroupVersionKind
		code        int
		text        string
	}{
		"another kind":       {"", `{"apiVersion":"v1","kind":"ConfigMap"}`, podKind, 400, `ConfigMap in version "v1" cannot be handled as a Pod`},
		"another version":    {"", `{"apiVersion":"v2","kind":"Pod"}`, podKind, 400, "the API version in the data (v2) does not match the expected API version (v1)"},
		"no version":         {"", `{"apiVersion":"a/b/c","kind":"Pod"}`, podKind, 400, "the API version in the data (a/b/c)"},
		"another kind, pb":   {protobuf, string(deployment), podKind, 400, `ConfigMap in version "v1" cannot be handled as a Pod`},
		"no JSON":            {"", `{"kind":`, podKind, 400, `the object provided is unrecognized (must be of type Pod): couldn't get version/kind; json parse error: unexpected end of JSON input`},
		"empty":              {"", ``, podKind, 400, "(<empty>)"},
		"a wrong type":       {"", `{"spec":{"containers":"x"}}`, podKind, 400, `Pod in version "v1" cannot be handled as a Pod: json: cannot unmarshal string`},
		"a list":             {"", `[]`, podKind, 400, "unrecognized"},
		"control characters": {"", "\x1b[2J\x00", podKind, 400, "(1b5b324a00)"},
		"no YAML":            {"application/yaml", "a: b: c", podKind, 400, "unrecognized"},
		"no protobuf":        {protobuf, "{}", podKind, 400, "unrecognized"},
		"broken protobuf":    {protobuf, "k8s\x00\x0a", podKind, 400, "unrecognized"},
		"broken object":      {protobuf, "k8s\x00\x12\x02\x0a\x7f", podKind, 400, "cannot be handled"},
		"CBOR":               {"application/cbor", "{}", podKind, 415, "accepted media types include: application/json, application/yaml, " + protobuf},
		"no media type":      {"x/y/z", "{}", podKind, 415, "unknown format"},
		"metrics":            {protobuf, "k8s\x00", schema.GroupVersionKind{Group: "metrics.k8s.io", Version: "v1beta1", Kind: "PodMetrics"}, 415, "application/json"},
		"deep":               {"", strings.Repeat(`{"a":`, 200) + "1" + strings.Repeat("}", 200), podKind, 400, "nested deeper than 100 levels"},
		"many values":        {"", `{"spec":{"containers":[` + strings.Repeat("{},", 60_000) + `{}]}}`, podKind, 400, "more than 50000 values"},
		"many values, pb":    {protobuf, "k8s\x00" + string(raw(strings.Repeat("\x12\x00", 60_000))), podKind, 400, "more than 50000 values"},
		"a tiny quantity":    {"", `{"spec":{"containers":[{"resources":{"limits":{"cpu":"1e-2147483648"}}}]}}`, podKind, 400, "exponent"},
		"a huge quantity":    {"", `{"spec":{"containers":[{"resources":{"limits":{"cpu":"1e2147483647"}}}]}}`, podKind, 400, "exponent"},
		"a long quantity":    {"", `{"spec":{"overhead":{"cpu":"` + strings.Repeat("1", 1_000_000) + `"}}}`, podKind, 400, "characters"},
		"a tiny number":      {"", `{"spec":{"containers":[{"resources":{"limits":{"cpu":1E-02147483648}}}]}}`, podKind, 400, "exponent"},
		"a tiny one in YAML": {"application/yaml", "spec: {containers: [{resources: {limits: {cpu: ' 1e-2147483648'}}}]}", podKind, 400, "exponent"},
		"a tiny one, pb":     {protobuf, "k8s\x00" + string(raw("\x12\x18\x42\x16\x0a\x14\x0a\x01c\x12\x0f\x0a\x0d1e-2147483648")), podKind, 400, "exponent"},
		"aliases":            {"application/yaml", bomb(), podKind, 400, ""},
	} {
		_, _, err := codec.Decode(httptest.NewRecorder(), post(c.media, strings.NewReader(c.body)), c.into, "Warn")
		var s apierrors.APIStatus
		if !errors.As(err, &s) || int(s.Status().Code) != c.code || !strings.Contains(s.Status().Message, c.text) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && (strings.ContainsAny(err.Error(), "\x1b\x00\n") || len(err.Error()) > 3000) {
			t.Errorf("%s: %q", name, err)
		}
	}
}

// raw is a runtime.Unknown with an object of a spec with that content.
func raw(spec string) []byte {
	field := func(key byte, b []byte) []byte {
		out := []byte{key}
		for n := len(b); ; n >>= 7 {
			if n < 0x80 {
				return append(append(out, byte(n)), b...)
			}
			out = append(out, byte(n)|0x80)
		}
	}
	return field(0x12, field(0x12, []byte(spec)))
}

// bomb is YAML whose aliases stand for more than fits into memory.
func bomb() string {
	var b strings.Builder
	b.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := range 12 {
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i), 10), ", "))
	}
	return b.String()
}

func TestDataOfConfigMapsMayLookLikeProtobuf(t *testing.T) {
	c := &corev1.ConfigMap{BinaryData: map[string][]byte{"x": bytes.Repeat([]byte{0x12, 0}, 100_000)}}
	c.SetGroupVersionKind(mapKind)
	if _, _, err := codec.DecodeBytes(encode(t, protobuf, c), protobuf, mapKind, "Strict"); err != nil {
		t.Error(err)
	}
}

func TestLargeBodiesAreRefused(t *testing.T) {
	large := strings.NewReader(`{"data":{"x":"` + strings.Repeat("x", codec.MaxBody) + `"}}`)
	for name, body := range map[string]io.Reader{"with length": large, "without": iotest.HalfReader(io.LimitReader(zeros{}, codec.MaxBody+1))} {
		_, _, err := codec.Decode(httptest.NewRecorder(), post("application/json", body), mapKind, "Warn")
		if !apierrors.IsRequestEntityTooLargeError(err) || !strings.Contains(err.Error(), "limit is 3145728") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if b, err := codec.ReadBody(httptest.NewRecorder(), post("", strings.NewReader("1234")), 4); err != nil || string(b) != "1234" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := codec.ReadBody(httptest.NewRecorder(), post("", iotest.ErrReader(io.ErrUnexpectedEOF)), 4); !apierrors.IsBadRequest(err) {
		t.Errorf("%v", err)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

func TestTheWorstBodiesTakeLittleMemory(t *testing.T) {
	for name, c := range map[string]struct{ media, body string }{
		"JSON":     {"application/json", `{"spec":{"containers":[` + strings.Repeat("{},", codec.MaxBody/3-20) + `{}]}}`},
		"protobuf": {protobuf, "k8s\x00" + string(raw(strings.Repeat("\x12\x00", codec.MaxBody/2-20)))},
		"aliases":  {"application/yaml", bomb()},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, err := codec.Decode(httptest.NewRecorder(), post(c.media, strings.NewReader(c.body)), podKind, "Warn")
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; err == nil || got > 64<<20 {
			t.Errorf("%s: %d MiB were allocated, %v", name, got>>20, err)
		}
	}
}

func TestJSONOfYAML(t *testing.T) {
	for body, want := range map[string]string{"a: 1\n": `{"a":1}`, ` {"a":1}`: ` {"a":1}`} {
		if got, err := codec.JSON([]byte(body)); err != nil || string(got) != want {
			t.Errorf("%q: %q, %v", body, got, err)
		}
	}
	for _, body := range []string{"a: b: c", bomb(), strings.Repeat("[", 200)} {
		if _, err := codec.JSON([]byte(body)); !apierrors.IsBadRequest(err) {
			t.Errorf("%.20q: %v", body, err)
		}
	}
}

func TestErrorsAreAnswers(t *testing.T) {
	invalid := apierrors.NewTooManyRequests("slow down", 7)
	for name, c := range map[string]struct {
		err    error
		code   int
		reason metav1.StatusReason
		text   string
	}{
		"as it is":  {invalid, 429, metav1.StatusReasonTooManyRequests, "slow down"},
		"wrapped":   {fmt.Errorf("write: %w", invalid), 429, metav1.StatusReasonTooManyRequests, "slow down"},
		"deadline":  {fmt.Errorf("read: %w", context.DeadlineExceeded), 504, metav1.StatusReasonTimeout, "request timed out; retry"},
		"cancelled": {context.Canceled, 504, metav1.StatusReasonTimeout, "request timed out; retry"},
		"other":     {errors.New("bad\x1b[2J\n" + strings.Repeat("x", 5000)), 500, metav1.StatusReasonInternalError, `bad\x1b[2J\nxxx`},
		"none":      {nil, 500, metav1.StatusReasonInternalError, "unknown"},
		"no code":   {&apierrors.StatusError{}, 500, "", ""},
	} {
		for _, accept := range []string{"", protobuf, "application/yaml", asTable, "text/html"} {
			w := httptest.NewRecorder()
			codec.Fail(w, get("/", accept), c.err)
			got := decode(t, w.Header().Get("Content-Type"), w.Body.Bytes()).(*metav1.Status)
			if w.Code != c.code || got.Status != "Failure" || int(got.Code) != c.code || got.Reason != c.reason || !strings.Contains(got.Message, c.text) || len(got.Message) > 2000 {
				t.Errorf("%s: %d %+v", name, w.Code, got)
			}
			if retry := w.Header().Get("Retry-After"); (retry == "7") != (c.code == 429) {
				t.Errorf("%s: Retry-After %q", name, retry)
			}
		}
	}
}

func TestWarningsAreBounded(t *testing.T) {
	w := httptest.NewRecorder()
	codec.Warn(w, "a \"b\" \x1b\n")
	codec.Warn(w, "a \"b\" \x1b\n")
	codec.Warn(w, strings.Repeat("é", 3000))
	if got := w.Header().Values("Warning"); len(got) != 2 || got[0] != `299 - "a \"b\" \\x1b\\n"` || len(got[1]) > 1100 || !strings.HasSuffix(got[1], `é..."`) {
		t.Errorf("%q", got)
	}
	for i := range 100 {
		codec.Warn(w, fmt.Sprint(i, strings.Repeat("x", 500)))
	}
	if got := strings.Join(w.Header().Values("Warning"), ""); len(got) > 8<<10 {
		t.Errorf("%d bytes", len(got))
	}
}

func FuzzNegotiate(f *testing.F) {
	for _, accept := range []string{"", "*/*", protobuf, asTable, asMeta, "application/json;q=0.1,,;", `application/json;a="`, "a/b;q=1e999"} {
		f.Add(accept, "watch=1&includeObject=None")
	}
	f.Fuzz(func(t *testing.T, accept, query string) {
		r := get("/", accept)
		r.URL.RawQuery = query
		format, err := codec.Negotiate(r, pods())
		w := httptest.NewRecorder()
		if err != nil {
			codec.Fail(w, r, err)
		} else {
			if err := format.Object(w, 200, pod("web")); err != nil {
				t.Fatal(err)
			}
			if err := format.List(httptest.NewRecorder(), pods(), []kinds.Object{pod("web")}, 1); err != nil {
				t.Fatal(err)
			}
			if err := format.Watch(httptest.NewRecorder()).Send(watch.Added, pod("web")); err != nil {
				t.Fatal(err)
			}
		}
		if w.Body.Len() == 0 || w.Code != 200 && w.Code != 400 && w.Code != 406 {
			t.Errorf("%d, %d bytes", w.Code, w.Body.Len())
		}
	})
}

func FuzzDecode(f *testing.F) {
	for _, media := range []string{"application/json", "application/yaml", protobuf} {
		f.Add(media, encode(f, media, pod("web")), "Warn")
	}
	f.Add("application/yaml", []byte(bomb()), "Strict")
	f.Add("application/json", []byte(`{"a":{"a":1,"a":2}}`), "Strict")
	f.Fuzz(func(t *testing.T, media string, body []byte, validation string) {
		o, warnings, err := codec.DecodeBytes(body, media, podKind, validation)
		var s apierrors.APIStatus
		switch {
		case err != nil && (!errors.As(err, &s) || s.Status().Code != 400 && s.Status().Code != 415):
			t.Errorf("%v", err)
		case err == nil && o.GetObjectKind().GroupVersionKind() != podKind:
			t.Errorf("%+v", o)
		case len(warnings) > 50:
			t.Errorf("%d warnings", len(warnings))
		}
	})
}
