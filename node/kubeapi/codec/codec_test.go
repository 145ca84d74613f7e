package codec_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"monopod/node/kubeapi/codec"
	"monopod/node/kubeapi/kinds"
	"monopod/node/kubeapi/metricsv1beta1"
)

const (
	protobuf = "application/vnd.kubernetes.protobuf"
	asTable  = "application/json;as=Table;v=v1;g=meta.k8s.io"
	asMeta   = protobuf + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

func pods() *kinds.Kind { return kinds.ByKind(corev1.SchemeGroupVersion.WithKind("Pod")) }

func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", ResourceVersion: "7", Labels: map[string]string{"a": "b"}, CreationTimestamp: metav1.Unix(1e9, 0)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "nginx", Env: []corev1.EnvVar{{Name: "TEXT", Value: "two\n\n  lines\n"}}}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

func get(url, accept string, header ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, url, http.NoBody)
	r.Header.Set("Accept", accept)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return r
}

func negotiate(t testing.TB, r *http.Request, k *kinds.Kind) *codec.Format {
	t.Helper()
	f, err := codec.Negotiate(r, k)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// decode decodes an answer as clients do.
func decode(t testing.TB, media string, body []byte) kruntime.Object {
	t.Helper()
	media, _, _ = strings.Cut(media, ";")
	info, ok := kruntime.SerializerInfoForMediaType(kinds.Codecs().SupportedMediaTypes(), media)
	if !ok {
		t.Fatalf("no decoder for %q", media)
	}
	o, _, err := info.Serializer.Decode(body, nil, nil)
	if err != nil {
		t.Fatalf("%v: %.300q", err, body)
	}
	return o
}

func TestNegotiationTakesTheFirstThatCanBeWritten(t *testing.T) {
	metrics := kinds.ByKind(metricsv1beta1.SchemeGroupVersion.WithKind("PodMetrics"))
	for accept, want := range map[string]string{
		"": "application/json", "*/*": "application/json", "application/*": "application/json", "application/yaml": "application/yaml",
		protobuf:                                          protobuf,
		protobuf + ",application/json":                    protobuf,
		"application/json;q=0.5, " + protobuf:             protobuf,
		protobuf + ";q=0, application/yaml":               "application/yaml",
		"application/cbor, application/json":              "application/json",
		"text/html,application/xml;q=0.9,*/*;q=0.8":       "application/json",
		"application/json;as=Table;v=v2;g=x, " + protobuf: protobuf,
		"nonsense; ;;, application/yaml":                  "application/yaml",
		"application/cbor":                                "406", "text/html": "406", protobuf + ";as=Table;v=v1;g=meta.k8s.io": "406",
		"application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io": "406",
		"application/json;stream=other":                                        "406", "application/json;q=NaN": "406",
	} {
		w := httptest.NewRecorder()
		r := get("/", accept)
		if f, err := codec.Negotiate(r, pods()); err != nil {
			codec.Fail(w, r, err)
		} else if err := f.Object(w, http.StatusOK, pod("web")); err != nil {
			t.Fatal(err)
		}
		got := w.Header().Get("Content-Type")
		if w.Code != http.StatusOK {
			got = fmt.Sprint(w.Code)
			if s := decode(t, "application/json", w.Body.Bytes()).(*metav1.Status); s.Reason != metav1.StatusReasonNotAcceptable {
				t.Errorf("%s: %+v", accept, s)
			}
		}
		if got != want {
			t.Errorf("%s: %s, want %s", accept, got, want)
		}
	}
	if _, err := codec.Negotiate(get("/", protobuf), metrics); !apierrors.IsNotAcceptable(err) {
		t.Errorf("metrics as protobuf: %v", err)
	}
	if _, err := codec.Negotiate(get("/?watch=true", "application/yaml"), pods()); !apierrors.IsNotAcceptable(err) {
		t.Errorf("watch as YAML: %v", err)
	}
	if _, err := codec.Negotiate(get("/?includeObject=All", asTable), pods()); !apierrors.IsBadRequest(err) {
		t.Errorf("includeObject: %v", err)
	}
	if f := negotiate(t, get("/", protobuf+",application/json"), metrics); f.Object(httptest.NewRecorder(), 200, metrics.New()) != nil {
		t.Error("metrics: JSON is not taken")
	}
}

func TestEachKindIsReadBackAsItWasWritten(t *testing.T) {
	for _, k := range kinds.All() {
		for _, media := range []string{"application/json", "application/yaml", protobuf} {
			f, err := codec.Negotiate(get("/", media), k)
			if media == protobuf && strings.Contains(k.Group, "metrics") || strings.Contains(k.Group, "monopod") && media == protobuf {
				if !apierrors.IsNotAcceptable(err) {
					t.Errorf("%s as protobuf: %v", k.Kind, err)
				}
				continue
			}
			o := k.New()
			o.SetName("web")
			o.SetResourceVersion("5")
			o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
			w := httptest.NewRecorder()
			if err := f.Object(w, http.StatusCreated, o); err != nil {
				t.Fatal(err)
			}
			if w.Code != http.StatusCreated || !o.GetObjectKind().GroupVersionKind().Empty() {
				t.Errorf("%s: %d; the object has a kind now: %v", k.Kind, w.Code, o.GetObjectKind().GroupVersionKind())
			}
			got := decode(t, media, w.Body.Bytes()).(kinds.Object)
			if got.GetName() != "web" || media != protobuf && got.GetObjectKind().GroupVersionKind() != k.GroupVersionKind {
				t.Errorf("%s as %s: %+v", k.Kind, media, got)
			}
			if k.Virtual {
				continue
			}
			w = httptest.NewRecorder()
			if err := f.List(w, k, []kinds.Object{o, o}, 9); err != nil {
				t.Fatal(err)
			}
			list := decode(t, media, w.Body.Bytes())
			if n := apimetaLen(list); n != 2 || list.(metav1.ListInterface).GetResourceVersion() != "9" {
				t.Errorf("list of %s as %s: %d, %+v", k.Kind, media, n, list)
			}
		}
	}
}

func apimetaLen(o kruntime.Object) int {
	b, _ := json.Marshal(o)
	var l struct{ Items []any }
	_ = json.Unmarshal(b, &l)
	return len(l.Items)
}

func TestListsAreThoseOfKubernetes(t *testing.T) {
	with := pod("web")
	with.SetGroupVersionKind(pods().GroupVersionKind)
	items := []kinds.Object{pod("db"), with}
	want := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "42"}, Items: []corev1.Pod{*pod("db"), *pod("web")}}
	for _, url := range []string{"/", "/?pretty=true"} {
		for _, media := range []string{"application/json", "application/yaml", protobuf} {
			w := httptest.NewRecorder()
			if err := negotiate(t, get(url, media), pods()).List(w, pods(), items, 42); err != nil {
				t.Fatal(err)
			}
			got := decode(t, media, w.Body.Bytes()).(*corev1.PodList)
			got.TypeMeta = metav1.TypeMeta{}
			if !equality.Semantic.DeepEqual(got, want) {
				t.Errorf("%s: %s\n%s", media, cmp.Diff(want, got), w.Body)
			}
			want.SetGroupVersionKind(pods().ListKind())
			if media == protobuf {
				info, _ := kruntime.SerializerInfoForMediaType(kinds.Codecs().SupportedMediaTypes(), media)
				upstream := bytes.Buffer{}
				if err := info.Serializer.Encode(want, &upstream); err != nil || !bytes.Equal(upstream.Bytes(), w.Body.Bytes()) {
					t.Errorf("other bytes than upstream: %v\n%q\n%q", err, upstream.Bytes(), w.Body.Bytes())
				}
			}
			want.TypeMeta = metav1.TypeMeta{}
		}
	}
	if with.Kind != "Pod" {
		t.Error("the shared object was changed")
	}
	for media, empty := range map[string]string{
		"application/json": `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`,
		"application/yaml": "apiVersion: v1\nkind: PodList\nmetadata:\n  resourceVersion: \"1\"\nitems: []",
		asTable:            "",
	} {
		w := httptest.NewRecorder()
		_ = negotiate(t, get("/", media), pods()).List(w, pods(), nil, 1)
		if got := strings.TrimSpace(w.Body.String()); empty != "" && got != empty || media == asTable && !strings.HasSuffix(got, `],"rows":[]}`) {
			t.Errorf("%s: %s", media, got)
		}
	}
}

func TestMetadataIsWrittenAlone(t *testing.T) {
	w := httptest.NewRecorder()
	if err := negotiate(t, get("/", asMeta), pods()).List(w, pods(), []kinds.Object{pod("db"), pod("web")}, 4); err != nil {
		t.Fatal(err)
	}
	s := kruntime.NewScheme()
	if err := metav1.AddMetaToScheme(s); err != nil {
		t.Fatal(err)
	}
	var unknown kruntime.Unknown
	if err := unknown.Unmarshal(w.Body.Bytes()[4:]); err != nil {
		t.Fatal(err)
	}
	var list metav1.PartialObjectMetadataList
	if err := list.Unmarshal(unknown.Raw); err != nil || unknown.Kind != "PartialObjectMetadataList" || unknown.APIVersion != "meta.k8s.io/v1" {
		t.Fatal(err, unknown)
	}
	if len(list.Items) != 2 || list.Items[1].Name != "web" || list.Items[1].Labels["a"] != "b" || list.ResourceVersion != "4" {
		t.Errorf("%+v", list)
	}
	w = httptest.NewRecorder()
	if err := negotiate(t, get("/", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"), pods()).Object(w, 200, pod("web")); err != nil {
		t.Fatal(err)
	}
	if got := w.Body.String(); strings.Contains(got, "nginx") || !strings.Contains(got, `"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1"`) {
		t.Error(got)
	}
}

func TestTablesHaveTheObjectsThatTheClientAskedFor(t *testing.T) {
	for query, want := range map[string]string{"": "PartialObjectMetadata", "?includeObject=None": "null", "?includeObject=Metadata": "PartialObjectMetadata", "?includeObject=Object": "Pod"} {
		f := negotiate(t, get("/"+query, asTable+",application/json"), pods())
		one, many := httptest.NewRecorder(), httptest.NewRecorder()
		if err := f.Object(one, 200, pod("web")); err != nil {
			t.Fatal(err)
		}
		if err := f.List(many, pods(), []kinds.Object{pod("web"), pod("db")}, 3); err != nil {
			t.Fatal(err)
		}
		for w, rows := range map[*httptest.ResponseRecorder]int{one: 1, many: 2} {
			var got metav1.Table
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatal(err, w.Body)
			}
			if got.Kind != "Table" || got.ResourceVersion == "" || len(got.Rows) != rows || len(got.ColumnDefinitions) < 2 || got.Rows[0].Cells[0] != "web" {
				t.Errorf("%s: %s", query, w.Body)
			}
			var object metav1.TypeMeta
			_ = json.Unmarshal(got.Rows[0].Object.Raw, &object)
			if object.Kind != want && string(got.Rows[0].Object.Raw) != want && len(got.Rows[0].Object.Raw) > 0 {
				t.Errorf("%s: %s, want %s", query, got.Rows[0].Object.Raw, want)
			}
		}
	}
	w := httptest.NewRecorder()
	scale := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: "web", CreationTimestamp: metav1.Unix(1e9, 0)}}
	if err := negotiate(t, get("/", asTable), pods()).Object(w, 200, scale); err != nil || !strings.Contains(w.Body.String(), `["web","2001-09-09T01:46:40Z"]`) {
		t.Error(err, w.Body)
	}
	w = httptest.NewRecorder()
	if err := negotiate(t, get("/", asTable), pods()).Object(w, 200, &metav1.Status{Status: "Success"}); err != nil || !strings.Contains(w.Body.String(), `"kind":"Status"`) {
		t.Error(err, w.Body)
	}
}

func TestOnlyLargeListsAreCompressed(t *testing.T) {
	for n, want := range map[int]string{3: "", 1000: "gzip"} {
		for _, media := range []string{"application/json", protobuf, asTable, "application/yaml"} {
			items := make([]kinds.Object, n)
			for i := range items {
				items[i] = pod(fmt.Sprint("web-", i))
			}
			if media == "application/yaml" && n > 3 {
				items = items[:900]
			}
			w := httptest.NewRecorder()
			if err := negotiate(t, get("/", media, "Accept-Encoding", "deflate, gzip;q=1"), pods()).List(w, pods(), items, 1); err != nil {
				t.Fatal(err)
			}
			body := w.Body.Bytes()
			if got := w.Header().Get("Content-Encoding"); got != want {
				t.Errorf("%d as %s: %q, %d bytes", n, media, got, len(body))
			}
			if want == "gzip" {
				z, err := gzip.NewReader(w.Body)
				if err != nil {
					t.Fatal(err)
				}
				if body, err = io.ReadAll(z); err != nil {
					t.Fatal(err)
				}
			} else if w.Header().Get("Content-Length") != fmt.Sprint(len(body)) {
				t.Errorf("length %s of %d", w.Header().Get("Content-Length"), len(body))
			}
			if media != asTable && apimetaLen(decode(t, media, body)) != len(items) {
				t.Errorf("%s: not all items", media)
			}
		}
	}
	for _, refused := range []string{"", "deflate", "gzip;q=0"} {
		items := make([]kinds.Object, 1000)
		for i := range items {
			items[i] = pod("web")
		}
		w := httptest.NewRecorder()
		_ = negotiate(t, get("/", "application/json", "Accept-Encoding", refused), pods()).List(w, pods(), items, 1)
		if w.Header().Get("Content-Encoding") != "" || !json.Valid(w.Body.Bytes()) {
			t.Errorf("%q is compressed", refused)
		}
	}
}

// discard is a client that reads all and keeps nothing.
type discard struct{ header http.Header }

func (d discard) Header() http.Header       { return d.header }
func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) WriteHeader(int)             {}

func TestListsTakeNoMemoryForAllItems(t *testing.T) {
	items := make([]kinds.Object, 1000)
	for i := range items {
		items[i] = pod(fmt.Sprint("web-", i))
	}
	for media, most := range map[string]uint64{"application/json": 4 << 20, protobuf: 2 << 20} {
		f := negotiate(t, get("/", media), pods())
		_ = f.List(discard{http.Header{}}, pods(), items, 1)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := f.List(discard{http.Header{}}, pods(), items, 1); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > most {
			t.Errorf("%s: %d bytes were allocated in all", media, got)
		}
	}
}

// broken is an object that cannot be encoded.
type broken struct{ corev1.Pod }

func (broken) MarshalJSON() ([]byte, error) { return nil, io.ErrUnexpectedEOF }

func TestAPartIsNeverTakenForTheWhole(t *testing.T) {
	items := make([]kinds.Object, 300)
	for i := range items {
		items[i] = pod("web")
	}
	w := httptest.NewRecorder()
	f := negotiate(t, get("/", "application/json"), pods())
	if err := f.List(w, pods(), []kinds.Object{&broken{}}, 1); err == nil || w.Body.Len() > 0 {
		t.Errorf("%v, %d bytes", err, w.Body.Len())
	}
	defer func() {
		if got, _ := recover().(error); !errors.Is(got, http.ErrAbortHandler) {
			t.Errorf("the connection is not broken: %v", got)
		}
	}()
	_ = f.List(w, pods(), append(items, &broken{}), 1)
}

func TestPrettyIsForPeople(t *testing.T) {
	for r, want := range map[*http.Request]bool{
		get("/", "application/json"): false, get("/?pretty=true", ""): true, get("/", "", "User-Agent", "curl/8"): true,
		get("/?pretty=0", "", "User-Agent", "curl/8"): false, get("/", "application/json;pretty=1"): true,
	} {
		one, many := httptest.NewRecorder(), httptest.NewRecorder()
		f := negotiate(t, r, pods())
		_ = f.Object(one, 200, pod("web"))
		_ = f.List(many, pods(), []kinds.Object{pod("web"), pod("db")}, 1)
		if got := strings.Contains(one.Body.String(), "\n  \"metadata\""); got != want || strings.Contains(many.Body.String(), "\n  \"metadata\"") != want || !json.Valid(many.Body.Bytes()) {
			t.Errorf("%s: %v\n%s", r.URL, got, many.Body)
		}
	}
}

func TestYAMLIsThatOfTheJSON(t *testing.T) {
	w := httptest.NewRecorder()
	if err := negotiate(t, get("/", "application/yaml"), pods()).List(w, pods(), []kinds.Object{pod("web")}, 1); err != nil {
		t.Fatal(err)
	}
	var got corev1.PodList
	if err := yaml.UnmarshalStrict(w.Body.Bytes(), &got); err != nil || got.Items[0].Spec.Containers[0].Env[0].Value != "two\n\n  lines\n" || got.Kind != "PodList" {
		t.Errorf("%v\n%s", err, w.Body)
	}
}

func BenchmarkList(b *testing.B) {
	items := make([]kinds.Object, 1000)
	for i := range items {
		items[i] = pod(fmt.Sprint("web-", i))
	}
	for _, media := range []string{"application/json", protobuf, asTable} {
		b.Run(media, func(b *testing.B) {
			b.ReportAllocs()
			f := negotiate(b, get("/", media), pods())
			for b.Loop() {
				_ = f.List(discard{http.Header{}}, pods(), items, 1)
			}
		})
	}
}
