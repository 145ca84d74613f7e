package request_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/internal/fuzztest"
	"monopod/node/kubeapi/kinds"
	"monopod/node/kubeapi/request"
)

// answered fails the test unless an error can be answered.
func answered(t *testing.T, err error) {
	t.Helper()
	var status apierrors.APIStatus
	if err != nil && !errors.As(err, &status) {
		t.Errorf("%v is no status", err)
	}
}

// FuzzPath: any path is a request or an error that can be answered.
func FuzzPath(f *testing.F) {
	for _, path := range []string{
		"/", "/api", "/api/v1/pods", "/api/v1/namespaces/a/pods/b/log", "/apis/apps/v1/namespaces/a/deployments/b/scale", "/api/v1/namespaces/a/pods/b/proxy/x/../../y", "//api//v1//pods",
		"/api/v1/namespaces/../pods/..", "/api/v1/namespaces/%2e%2e/pods/%2f", "/api/v1/namespaces/a%00/pods/\xff", "/api/v1/namespaces//pods", "/api/v1/pods/", "/apis//v1/pods",
		"/" + strings.Repeat("a/", 5000), "/api/v1/namespaces/" + strings.Repeat("a", 5000) + "/pods", "/%", "/api/v1/nodes/n/proxy/", "*", "",
	} {
		f.Add("GET", path, "watch=1")
		f.Add("PATCH", path, "")
	}
	f.Fuzz(func(t *testing.T, method, path, query string) {
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.Method, r.URL = method, &url.URL{Path: path, RawQuery: query}
		req, err := request.Parse(r, kinds.Served{})
		answered(t, err)
		if err == nil && (req == nil || req.Kind != nil && (strings.ContainsAny(req.Name+req.Namespace, "/%") || req.Name == ".." || req.Namespace == "..")) {
			t.Errorf("%q is %+v", path, req)
		}
		r.URL = &url.URL{Path: path, RawPath: path, RawQuery: query}
		_, err = request.Parse(r, kinds.Served{})
		answered(t, err)
	})
}

// FuzzOptions: any query is options or an error that can be answered, and selectors select at once.
func FuzzOptions(f *testing.F) {
	for _, query := range []string{
		"", "labelSelector=a%3Db,c!%3Dd,e+in+(f,g),!h", "fieldSelector=metadata.name%3Dx", "labelSelector=" + strings.Repeat("a,", 9000), "labelSelector=a+in+(" + strings.Repeat("b,", 8000) + ")",
		"limit=-1&continue=x", "limit=99999999999999999999", "timeoutSeconds=-9223372036854775808", "resourceVersion=-1&resourceVersionMatch=Exact", "watch=1&sendInitialEvents=true",
		"labelSelector=((((((", "labelSelector=a>1,b<x", "fieldSelector=%5C%5C%5C", "dryRun=All&dryRun=None&fieldManager=" + strings.Repeat("x", 9000), "fieldValidation=Never", "%zz;;&&==",
	} {
		f.Add(query)
	}
	k := kinds.ByKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	f.Fuzz(func(t *testing.T, query string) {
		began := time.Now()
		q, _ := url.ParseQuery(query)
		o, err := request.ParseListOptions(q, k)
		answered(t, err)
		if err == nil {
			o.Matches(k, &corev1.Pod{})
		}
		_, err = request.ParseWriteOptions(q)
		answered(t, err)
		fuzztest.Soon(t, began, 20*time.Second)
	})
}
