package request

import (
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/node/kubeapi/kinds"
)

var pods = corev1.SchemeGroupVersion.WithKind("Pod")

func query(t *testing.T, text string) url.Values {
	t.Helper()
	q, err := url.ParseQuery(text)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func TestParseListOptions(t *testing.T) {
	o, err := ParseListOptions(query(t, "labelSelector=app+in+(web,api)&fieldSelector=spec.nodeName%3Dhere&watch=1&allowWatchBookmarks=true&sendInitialEvents=true"+
		"&resourceVersion=7&resourceVersionMatch=NotOlderThan&timeoutSeconds=90&limit=500"), kinds.ByKind(pods))
	if err != nil {
		t.Fatal(err)
	}
	if o.SendInitialEvents == nil || !*o.SendInitialEvents || !o.Watch || !o.AllowBookmarks {
		t.Errorf("watch options: %+v", o)
	}
	if o.ResourceVersion != "7" || o.ResourceVersionMatch != "NotOlderThan" || o.Timeout != 90*time.Second || o.Limit != 500 {
		t.Errorf("list options: %+v", o)
	}
	for _, c := range []struct {
		node, app string
		want      bool
	}{{"here", "web", true}, {"here", "api", true}, {"there", "web", false}, {"here", "db", false}} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": c.app}}, Spec: corev1.PodSpec{NodeName: c.node}}
		if o.Matches(kinds.ByKind(pods), pod) != c.want {
			t.Errorf("%s on %s: want %v", c.app, c.node, c.want)
		}
	}
	o, err = ParseListOptions(nil, kinds.ByKind(pods))
	if err != nil || !o.Matches(kinds.ByKind(pods), &corev1.Pod{}) || o.SendInitialEvents != nil || o.Timeout != 0 {
		t.Errorf("without options: %+v, %v", o, err)
	}
	for text, want := range map[string]time.Duration{"-5": 0, "0": 0, "9223372036854775807": maxTimeout} {
		if o, err := ParseListOptions(query(t, "timeoutSeconds="+text), kinds.ByKind(pods)); err != nil || o.Timeout != want {
			t.Errorf("timeout %s: %v, %v", text, o.Timeout, err)
		}
	}
}

func TestParseListOptionsRefuses(t *testing.T) {
	for _, c := range []struct {
		query string
		code  int32
		text  string
	}{
		{"labelSelector=a+b", 400, "labelSelector"},
		{"labelSelector=((", 400, "labelSelector"},
		{"fieldSelector=x", 400, "fieldSelector"},
		{"fieldSelector=spec.nodeNam%3Dx", 400, "field label not supported: spec.nodeNam"},
		{"fieldSelector=metadata.name%3Da,other!%3Db", 400, "field label not supported: other"},
		{"labelSelector=" + strings.Repeat("a,", 40000), 400, "longer than"},
		{"timeoutSeconds=soon", 400, "soon"},
		{"limit=1.5", 400, "1.5"},
		{"resourceVersionMatch=Exact", 422, "unless resourceVersion is provided"},
		{"resourceVersionMatch=Exact&resourceVersion=0", 422, "forbidden for resourceVersion"},
		{"resourceVersionMatch=Newest&resourceVersion=1", 422, "Unsupported value"},
		{"resourceVersionMatch=Exact&resourceVersion=1&continue=x", 422, "continue"},
		{"sendInitialEvents=true", 422, "forbidden for list"},
		{"watch=1&sendInitialEvents=true", 422, "requires setting resourceVersionMatch"},
		{"watch=1&sendInitialEvents=true&resourceVersionMatch=Exact", 422, "NotOlderThan"},
		{"watch=1&resourceVersionMatch=NotOlderThan", 422, "unless sendInitialEvents"},
		{"watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&continue=x", 422, "continue"},
	} {
		_, err := ParseListOptions(query(t, c.query), kinds.ByKind(pods))
		status, ok := err.(apierrors.APIStatus)
		if !ok {
			t.Errorf("%.80s: %v", c.query, err)
		} else if status.Status().Code != c.code || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%.80s: %d %v, want %d %s", c.query, status.Status().Code, err, c.code, c.text)
		}
	}
}

func TestEachKindHasItsFieldLabels(t *testing.T) {
	for _, k := range kinds.All() {
		text := "fieldSelector=metadata.name%3Dx"
		if k.Namespaced {
			text += ",metadata.namespace%3Dy"
		}
		if _, err := ParseListOptions(query(t, text), k); err != nil {
			t.Errorf("%s: %v", k.Kind, err)
		}
		if _, err := ParseListOptions(query(t, "fieldSelector=metadata.uid%3Dx"), k); err == nil {
			t.Errorf("%s has an unknown label", k.Kind)
		}
	}
}

func TestParseWriteOptions(t *testing.T) {
	for _, c := range []struct {
		query string
		want  WriteOptions
	}{
		{"", WriteOptions{Validation: "Warn"}},
		{"dryRun=All&fieldManager=kubectl&force=true&fieldValidation=Strict", WriteOptions{DryRun: true, FieldManager: "kubectl", Force: true, Validation: "Strict"}},
		{"fieldValidation=Ignore&force=false", WriteOptions{Validation: "Ignore"}},
		{"pretty=true", WriteOptions{Validation: "Warn"}},
	} {
		if got, err := ParseWriteOptions(query(t, c.query)); err != nil || got != c.want {
			t.Errorf("%s: %+v, %v", c.query, got, err)
		}
	}
	for _, text := range []string{
		"dryRun=Some", "dryRun=", "fieldValidation=strict", "fieldManager=" + strings.Repeat("x", 129), "fieldManager=a%00b",
		"fieldManager=" + strings.Repeat("%00", 1000),
	} {
		_, err := ParseWriteOptions(query(t, text))
		if !apierrors.IsInvalid(err) {
			t.Errorf("%.40s: %v", text, err)
		} else if len(err.Error()) > 1000 {
			t.Errorf("%.40s: an error of %d bytes", text, len(err.Error()))
		}
	}
}

func FuzzParseListOptions(f *testing.F) {
	for _, text := range []string{
		"labelSelector=a+in+(b,c),!d&fieldSelector=metadata.name%3Dx", "watch=1&sendInitialEvents=&resourceVersionMatch=NotOlderThan", "timeoutSeconds=1e9&limit=-1",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		q, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		o, err := ParseListOptions(q, kinds.ByKind(pods))
		if err != nil {
			if _, ok := err.(apierrors.APIStatus); !ok {
				t.Fatalf("%v is no status", err)
			}
			return
		}
		o.Matches(kinds.ByKind(pods), &corev1.Pod{})
		if o.Timeout < 0 || o.Timeout > maxTimeout {
			t.Fatalf("timeout %v", o.Timeout)
		}
		if _, err := ParseWriteOptions(q); err != nil {
			if _, ok := err.(apierrors.APIStatus); !ok {
				t.Fatalf("%v is no status", err)
			}
		}
	})
}
